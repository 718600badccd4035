(** * A pool: passes, items, and a layout

    Joins the schedule of [Passes] to the executions of [Memory]: a pool whose schedule is well, and
    in which items that share bytes do not interfere, is safe; every read in every execution of the
    infinite schedule then returns what its live range's latest write wrote. *)

From Coq Require Import NArith List Lia Wellfounded Bool.
From Scratchpool Require Import Order Memory Passes.
Import ListNotations.
Open Scope N_scope.

Section Pool.
  Variable pass : list pass_node.
  Variable lasting : N -> bool.
  Variable offset size : N -> N.
  Hypothesis fit : waits_fit pass.
  Hypothesis some : 0 < K pass.

  (** A live range: its item and where it starts; of an item that lasts, the only one. *)
  Definition range : Type := (N * option N)%type.
  Definition range_dec : forall r s : range, {r = s} + {r <> s}.
  Proof. decide equality; [decide equality; apply N.eq_dec | apply N.eq_dec]. Defined.
  Definition item (r : range) : N := fst r.
  Definition forever (r : range) : Prop := snd r = None /\ lasting (item r) = true.
  Definition accesses (n : N) (r : range) : Prop :=
    match snd r with
    | Some s => lasting (item r) = false /\ in_range pass (item r) s n
    | None => lasting (item r) = true /\ touches pass n (item r)
    end.
  Definition writes (n : N) (r : range) : Prop := accesses n r /\ changes pass n (item r).

  Definition sharing (x y : N) : Prop := share offset size x y.

  (** Two items may not interfere if they share bytes; one that lasts shares with none that is
      accessed. *)
  Definition sound_layout (early : N -> Prop) : Prop := forall x y, x <> y -> sharing x y ->
    (exists n, touches pass n x) -> (exists n, touches pass n y) ->
    lasting x = false /\ lasting y = false /\ apart pass early x y.

  Definition sound_pool : Prop :=
    well pass lasting always always /\ sound_layout always.

  Lemma starts_dec : forall n x, {starts pass n x} + {~ starts pass n x}.
  Proof.
    intros n x. unfold starts. destruct (does pass n x) as [[k []] |].
    - left. eauto.
    - right. intros (k' & E). discriminate.
    - right. intros (k' & E). discriminate.
  Qed.

  (** What a live range has in its byte [i]. *)
  Definition in_range_ := Memory.in_range range range_dec.

  (** Among the starts up to [n], the last one. *)
  Lemma last_start : forall x n, (exists s, starts pass s x /\ s <= n) ->
    exists s, starts pass s x /\ s <= n /\ forall k, s < k -> k <= n -> ~ starts pass k x.
  Proof.
    intros x n. induction n as [| n IH] using N.peano_ind.
    - intros (s & S & L). exists s. split; [auto | split; [auto |]]. intros. lia.
    - intros (s & S & L). destruct (starts_dec (N.succ n) x) as [D | D].
      + exists (N.succ n). split; [auto | split; [lia |]]. intros. lia.
      + destruct IH as (r & R & Lr & G).
        { exists s. split; auto. destruct (N.eq_dec s (N.succ n)); [subst; contradiction | lia]. }
        exists r. split; [auto | split; [lia |]]. intros k H1 H2.
        destruct (N.eq_dec k (N.succ n)); [subst; auto | apply G; lia].
  Qed.

  Lemma all_renewed : well pass lasting always always -> forall x, lasting x = false ->
    forall t s, starts pass s x -> starts pass t x -> s < t -> range_before pass x s x t.
  Proof.
    intros W x X. induction t as [t IH] using (well_founded_induction N.lt_wf_0).
    intros s Ss St L m n Rm Rn.
    destruct (last_start x (t - 1)) as (r & Sr & Lr & G).
    { exists s. split; auto. lia. }
    assert (B : range_before pass x r x t).
    { apply (renewed _ _ _ _ W); unfold always; auto; try lia. intros k H1 H2. apply G; lia. }
    destruct (N.lt_trichotomy s r) as [H | [-> | H]].
    - assert (before pass m r).
      { apply (IH r ltac:(lia) s); auto. apply range_self; auto. }
      eapply hb_trans; eauto. apply B; auto. apply range_self; auto.
    - apply B; auto.
    - exfalso. apply (G s); auto. lia.
  Qed.

  Lemma in_range_start : forall x s t n, in_range pass x s n -> in_range pass x t n -> s = t.
  Proof.
    intros x s t n (Ss & _ & Ls & Gs) (St & _ & Lt & Gt).
    destruct (N.lt_trichotomy s t) as [H | [E | H]]; auto; exfalso.
    - exact (Gs t H Lt St).
    - exact (Gt s H Ls Ss).
  Qed.

  (** What the planner proves is what memory needs. *)
  Theorem sound_is_safe : sound_pool ->
    safe (before pass) range item forever accesses writes offset size.
  Proof.
    intros [W L]. constructor.
    - intros [x [s |]] m n; unfold writes, accesses; simpl.
      + intros [X Rm] [_ Rn] Q C. apply (raceless _ _ _ _ W x s); unfold always; auto. tauto.
      + intros [X Tm] [_ Tn] Q C. apply (raceless_lasting _ _ _ _ W x); unfold always; auto. tauto.
    - intros [x s] [y t] D Sh (m & Am) (n & An). unfold item in Sh. simpl in Sh.
      destruct (N.eq_dec x y) as [<- | E].
      + destruct s as [s |], t as [t |]; unfold accesses in Am, An; simpl in Am, An;
          try congruence; try (destruct Am, An; congruence).
        destruct Am as [X Rm], An as [_ Rn].
        assert (Ss : starts pass s x) by apply Rm. assert (St : starts pass t x) by apply Rn.
        destruct (N.lt_trichotomy s t) as [H | [-> | H]]; [left | congruence | right];
          intros a b [_ Ra] [_ Rb]; simpl in Ra, Rb.
        * exact (all_renewed W x X t s Ss St H a b Ra Rb).
        * exact (all_renewed W x X s t St Ss H a b Ra Rb).
      + assert (T : forall z u a, accesses a (z, u) -> touches pass a z).
        { intros z [u |] a [_ A]; simpl in A; auto. apply A. }
        destruct (L x y E Sh) as (X & Y & A); eauto.
        unfold accesses in Am, An; simpl in Am, An.
        destruct s as [s |]; [| destruct Am; congruence].
        destruct t as [t |]; [| destruct An; congruence].
        destruct Am as [_ Rm], An as [_ Rn].
        destruct (A s t) as [B | B]; unfold always; auto; try apply Rm; try apply Rn.
        * left. intros a b [_ Ra] [_ Rb]; simpl in *. apply B; auto.
        * right. intros a b [_ Ra] [_ Rb]; simpl in *. apply B; auto.
    - intros [x s] [y t] D [F X] Sh (m & Am) (n & An). simpl in *. subst s. unfold item in Sh. simpl in Sh.
      destruct (N.eq_dec x y) as [<- | E].
      + destruct t as [t |]; [| congruence]. destruct An as [X' _]. simpl in X'. congruence.
      + destruct (L x y E Sh) as (X' & _); [| | congruence]; [exists m | exists n].
        * destruct Am as [_ Tm]. exact Tm.
        * unfold accesses in An. simpl in An. destruct t as [t |]; apply An.
  Qed.
  (** Every read of every execution of the infinite schedule returns what its live range's latest
      write wrote. *)
  Theorem pool_is_sound : sound_pool -> forall initial t l1 e l2 v w,
    legal (before pass) range item accesses writes offset size initial t -> t = l1 ++ e :: l2 ->
    op range e = Read v -> in_range_ l1 (of range e) (byte range e) = Some w -> v = w.
  Proof.
    intros S initial t l1 e l2 v w L E O R.
    eapply (reuse_is_sound (before pass) range range_dec item forever accesses writes); eauto.
    - intros n r W. apply W.
    - apply sound_is_safe. auto.
  Qed.
End Pool.

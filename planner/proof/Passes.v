(** * Passes repeated for ever, and why three of them are enough

    A pass is a finite list of nodes; it is repeated for ever.  Order and live ranges are those of the
    infinite schedule, as the pool spec defines them.  The theorem [three_passes]: all is well in the
    infinite schedule if and only if all is well among the nodes of the first three passes, looking at
    live ranges that start in the first two.  Models [planner/src/schedule.rs] and
    [planner/src/live.rs]. *)

From Coq Require Import NArith List Lia Wellfounded Bool.
From Scratchpool Require Import Order.
Import ListNotations.
Open Scope N_scope.

(** What a step does to an item.  An item is a part of a buffer; a copy of a [per_layer] buffer has
    items of its own. *)
Inductive access := Reads | Writes | Updates | Uses.

Definition modifies (k : access) : bool :=
  match k with Reads => false | _ => true end.

(** A node of a pass. *)
Record pass_node := PassNode {
  p_stream : nat;
  p_kind : launch;
  p_waits : list (bool * N);             (* of the pass before?  place in its pass *)
  p_accesses : list (N * (access * bool))  (* item, what, whether a live range starts there *)
}.

Definition nothing : pass_node := PassNode 0 Full [] [].

Section Passes.
  Variable pass : list pass_node.
  Definition K : N := N.of_nat (length pass).
  Definition place (i : N) : pass_node := nth (N.to_nat i) pass nothing.

  (** A wait names an earlier node of its pass, or some node of the pass before. *)
  Definition waits_fit : Prop :=
    forall i b j, i < K -> In (b, j) (p_waits (place i)) -> if b : bool then j < K else j < i.

  (** The node number [i] of pass [p]. *)
  Definition absolute (p : N) (w : bool * N) : list N :=
    if fst w then (if p =? 0 then [] else [(p - 1) * K + snd w]) else [p * K + snd w].
  Definition instance (p : N) (a : pass_node) : node :=
    Node (p_stream a) (p_kind a) (flat_map (absolute p) (p_waits a)).

  (** The infinite schedule. *)
  Definition nd (n : N) : node := instance (n / K) (place (n mod K)).
  Definition does (n x : N) : option (access * bool) :=
    match find (fun a => fst a =? x) (p_accesses (place (n mod K))) with
    | Some a => Some (snd a) | None => None end.

  Definition touches (n x : N) : Prop := does n x <> None.
  Definition changes (n x : N) : Prop := exists k b, does n x = Some (k, b) /\ modifies k = true.
  Definition starts (n x : N) : Prop := exists k, does n x = Some (k, true).

  (** Node [n] accesses the live range of [x] that starts at [s]. *)
  Definition in_range (x s n : N) : Prop :=
    starts s x /\ touches n x /\ s <= n /\ forall k, s < k -> k <= n -> ~ starts k x.

  Definition before : N -> N -> Prop := hb nd.

  Definition range_before (x s y t : N) : Prop :=
    forall m n, in_range x s m -> in_range y t n -> before m n.

  (** ** What must hold, of items that do ([lasting]) or do not keep their value for ever, among
      the nodes for which [near] holds and live ranges whose start satisfies [early] *)
  Variable lasting : N -> bool.

  Record well (early near : N -> Prop) : Prop := {
    (* no read_before_write *)
    written : forall x n, near n -> lasting x = false -> touches n x -> exists s, in_range x s n;
    (* no race *)
    raceless : forall x s m n, early s -> near m -> near n -> lasting x = false ->
      in_range x s m -> in_range x s n -> m < n -> changes m x \/ changes n x -> before m n;
    raceless_lasting : forall x m n, early m -> near n -> lasting x = true ->
      touches m x -> touches n x -> m < n -> changes m x \/ changes n x -> before m n;
    (* no reuse: two consecutive live ranges are in order *)
    renewed : forall x s t, early s -> early t -> lasting x = false -> starts s x -> starts t x -> s < t ->
      (forall k, s < k -> k < t -> ~ starts k x) -> range_before x s x t
  }.

  (** Two items that do not interfere. *)
  Definition apart (early : N -> Prop) (x y : N) : Prop :=
    forall s t, early s -> early t -> starts s x -> starts t y ->
      range_before x s y t \/ range_before y t x s.

  Definition always (_ : N) : Prop := True.

  (** ** Passes are alike *)
  Section Alike.
    Hypothesis fit : waits_fit.
    Hypothesis some : 0 < K.

    Lemma K_nz : K <> 0. Proof. lia. Qed.

    Lemma mod_shift : forall n, (n + K) mod K = n mod K.
    Proof. intros n. rewrite <- (N.mul_1_l K) at 1. apply N.mod_add. exact K_nz. Qed.
    Lemma div_shift : forall n, (n + K) / K = n / K + 1.
    Proof. intros n. rewrite <- (N.mul_1_l K) at 1. apply N.div_add. exact K_nz. Qed.
    Lemma split : forall n, n = n / K * K + n mod K.
    Proof. intros n. rewrite N.mul_comm. apply N.div_mod. exact K_nz. Qed.
    Lemma mod_lt : forall n, n mod K < K.
    Proof. intros n. apply N.mod_lt. exact K_nz. Qed.

    Lemma waits_of : forall n s, In s (waits (nd n)) <->
      exists b j, In (b, j) (p_waits (place (n mod K))) /\
        if b : bool then n / K <> 0 /\ s = (n / K - 1) * K + j else s = n / K * K + j.
    Proof.
      intros n s. unfold nd, instance. simpl. rewrite in_flat_map. split.
      - intros ([b j] & I & Q). exists b, j. split; auto. unfold absolute in Q. cbn [fst snd] in Q.
        destruct b.
        + destruct (N.eqb_spec (n / K) 0) as [E | E]; [destruct Q |].
          destruct Q as [Q | []]; auto.
        + destruct Q as [Q | []]. auto.
      - intros (b & j & I & Q). exists (b, j). split; auto. unfold absolute. simpl.
        destruct b.
        + destruct Q as [Q ->]. apply N.eqb_neq in Q. rewrite Q. left. auto.
        + left. auto.
    Qed.

    Lemma pred_of : forall q, q <> 0 -> exists q', q = q' + 1.
    Proof. intros q H. exists (q - 1). lia. Qed.

    Lemma waits_back : forall n s, In s (waits (nd n)) -> s < n.
    Proof.
      intros n s H. apply waits_of in H. destruct H as (b & j & I & Q).
      pose proof (fit _ _ _ (mod_lt n) I) as F. pose proof (split n) as Sp. pose proof (mod_lt n).
      destruct b.
      - destruct Q as [Q ->]. destruct (pred_of (n / K) Q) as (q & E). rewrite E in *.
        replace (q + 1 - 1) with q by lia. rewrite N.mul_add_distr_r, N.mul_1_l in Sp. clear Q E. remember (n mod K) as r. lia.
      - lia.
    Qed.

    Definition lt_of := hb_lt nd waits_back.

    Lemma stream_shift : forall n, stream (nd (n + K)) = stream (nd n).
    Proof. intros n. unfold nd. simpl. rewrite mod_shift. reflexivity. Qed.
    Lemma kind_shift : forall n, kind (nd (n + K)) = kind (nd n).
    Proof. intros n. unfold nd. simpl. rewrite mod_shift. reflexivity. Qed.
    Lemma does_shift : forall n x, does (n + K) x = does n x.
    Proof. intros n x. unfold does. rewrite mod_shift. reflexivity. Qed.

    Lemma waits_shift : forall n s, In s (waits (nd n)) <-> In (s + K) (waits (nd (n + K))).
    Proof.
      intros n s. rewrite !waits_of, mod_shift, div_shift. split.
      - intros (b & j & I & Q). exists b, j. split; auto. destruct b.
        + destruct Q as [Q ->]. destruct (pred_of (n / K) Q) as (q & E). rewrite E.
          split; [lia |]. replace (q + 1 + 1 - 1) with (q + 1) by lia.
          replace (q + 1 - 1) with q by lia. lia.
        + lia.
      - intros (b & j & I & Q). exists b, j. split; auto.
        pose proof (fit _ _ _ (mod_lt n) I) as F. destruct b.
        + destruct Q as [_ Q].
          assert (n / K <> 0). { intros Z. rewrite Z in Q. simpl in Q. lia. }
          split; auto. destruct (pred_of (n / K) H) as (q & E). rewrite E in *.
          replace (q + 1 + 1 - 1) with (q + 1) in Q by lia. replace (q + 1 - 1) with q by lia. lia.
        + lia.
    Qed.

    Lemma same_shift : forall a b, same nd (a + K) (b + K) <-> same nd a b.
    Proof. intros. unfold same. rewrite !stream_shift. tauto. Qed.

    Lemma prev_shift : forall p n, prev nd p n <-> prev nd (p + K) (n + K).
    Proof.
      intros p n. unfold prev. rewrite same_shift. split; intros (L & S & G); repeat split; auto; try lia.
      - intros k H1 H2 H3. apply (G (k - K)); try lia.
        replace k with (k - K + K) in H3 by lia. apply -> same_shift. exact H3.
      - intros k H1 H2 H3. apply (G (k + K)); try lia. apply same_shift. auto.
    Qed.

    (** Order looks the same from every pass. *)
    Lemma before_shift : forall a b, before a b <-> before (a + K) (b + K).
    Proof.
      unfold before. split.
      - induction 1 as [m n Q L S | p n Q P | k p n Q P H IH | m s n W L S | a b c H1 IH1 H2 IH2].
        + apply hb_full; [rewrite kind_shift; auto | lia | apply same_shift; auto].
        + apply hb_dependent; [rewrite kind_shift; auto | apply -> prev_shift; auto].
        + eapply hb_early; [rewrite kind_shift; auto | apply -> prev_shift; eauto | auto].
        + eapply hb_event; [apply -> waits_shift; eauto | lia | apply same_shift; auto].
        + eapply hb_trans; eauto.
      - intros H. remember (a + K) as a' eqn:Ea. remember (b + K) as b' eqn:Eb.
        revert a b Ea Eb.
        induction H as [m n Q L S | p n Q P | k p n Q P H IH | m s n W L S | a' b' c' H1 IH1 H2 IH2];
          intros x y -> ->.
        + apply hb_full; [rewrite <- kind_shift; auto | lia | apply -> same_shift; auto].
        + apply hb_dependent; [rewrite <- kind_shift; auto | apply <- prev_shift; auto].
        + apply lt_of in H as L. replace p with (p - K + K) in * by lia.
          eapply hb_early; [rewrite <- kind_shift; auto | apply <- prev_shift; eauto | auto].
        + replace s with (s - K + K) in * by lia.
          eapply hb_event; [apply <- waits_shift; eauto | lia | apply -> same_shift; auto].
        + apply lt_of in H1 as L. eapply hb_trans; [apply (IH1 x (b' - K)) | apply (IH2 (b' - K) y)]; lia.
    Qed.

    Lemma before_shifts : forall j a b, before a b <-> before (a + j * K) (b + j * K).
    Proof.
      induction j as [| j IH] using N.peano_ind; intros a b.
      - rewrite N.mul_0_l, !N.add_0_r. tauto.
      - rewrite N.mul_succ_l. replace (a + (j * K + K)) with (a + j * K + K) by lia.
        replace (b + (j * K + K)) with (b + j * K + K) by lia. rewrite <- before_shift. apply IH.
    Qed.

    (** What is in order stays so, the later node moved any number of passes. *)
    Lemma before_later : forall j a b, before a b -> before a (b + j * K).
    Proof.
      intros j a b H. induction j as [| j IH] using N.peano_ind.
      - rewrite N.mul_0_l, N.add_0_r. auto.
      - apply (hb_along nd (b + N.succ j * K) (b + j * K)); auto; [lia |].
        unfold same. replace (b + N.succ j * K) with (b + j * K + K) by lia.
        symmetry. apply stream_shift.
    Qed.

    Lemma does_shifts : forall j n x, does (n + j * K) x = does n x.
    Proof.
      induction j as [| j IH] using N.peano_ind; intros n x.
      - rewrite N.mul_0_l, N.add_0_r. auto.
      - replace (n + N.succ j * K) with (n + j * K + K) by lia. rewrite does_shift. auto.
    Qed.

    Lemma starts_shifts : forall j n x, starts (n + j * K) x <-> starts n x.
    Proof. intros. unfold starts. rewrite does_shifts. tauto. Qed.
    Lemma touches_shifts : forall j n x, touches (n + j * K) x <-> touches n x.
    Proof. intros. unfold touches. rewrite does_shifts. tauto. Qed.
    Lemma changes_shifts : forall j n x, changes (n + j * K) x <-> changes n x.
    Proof. intros. unfold changes. rewrite does_shifts. tauto. Qed.

    Lemma range_shifts : forall j x s n, in_range x (s + j * K) (n + j * K) <-> in_range x s n.
    Proof.
      intros j x s n. unfold in_range. rewrite starts_shifts, touches_shifts.
      split; intros (S & T & L & G); (split; [exact S | split; [exact T | split; [lia |]]]).
      - intros k H1 H2 H3. apply (G (k + j * K)); try lia. rewrite starts_shifts. auto.
      - intros k H1 H2 H3. apply (G (k - j * K)); try lia.
        replace k with (k - j * K + j * K) in H3 by lia. rewrite starts_shifts in H3. auto.
    Qed.

    (** A live range ends before its next start, one pass later at the latest. *)
    Lemma range_short : forall x s n, in_range x s n -> n < s + K.
    Proof.
      intros x s n (S & _ & L & G). destruct (N.lt_ge_cases n (s + K)) as [| Q]; auto. exfalso.
      apply (G (s + K)); try lia. replace (s + K) with (s + 1 * K) by lia. rewrite starts_shifts. auto.
    Qed.

    Lemma range_self : forall x s, starts s x -> in_range x s s.
    Proof.
      intros x s S. split; [auto | split; [| split; [lia | lia]]].
      destruct S as (k & E). unfold touches. congruence.
    Qed.

    (** Every node is one of the first pass, moved. *)
    Lemma near_start : forall n, exists j m, n = m + j * K /\ m < K.
    Proof. intros n. exists (n / K), (n mod K). split; [rewrite (split n) at 1; lia | apply mod_lt]. Qed.

    Definition two (n : N) : Prop := n < 2 * K.
    Definition three (n : N) : Prop := n < 3 * K.

    (** Three passes are enough, for the errors of the schedule itself. *)
    Theorem three_passes : well two three <-> well always always.
    Proof.
      split; intros W; constructor.
      - intros x n _ X T. destruct (near_start n) as (j & m & -> & L).
        rewrite touches_shifts in T.
        destruct (written _ _ W x m) as (s & R); auto; [unfold three; lia |].
        exists (s + j * K). apply range_shifts. auto.
      - intros x s m n _ _ _ X Rm Rn L C. destruct (near_start s) as (j & s' & -> & Ls).
        assert (s' + j * K <= m) by apply Rm. assert (s' + j * K <= n) by apply Rn.
        replace m with (m - j * K + j * K) in * by lia. replace n with (n - j * K + j * K) in * by lia.
        rewrite range_shifts in Rm, Rn. rewrite !changes_shifts in C.
        apply range_short in Rm as Bm. apply range_short in Rn as Bn.
        apply -> before_shifts. apply (raceless _ _ W x s'); auto; unfold two, three; lia.
      - intros x m n _ _ X Tm Tn L C. destruct (near_start m) as (j & m' & -> & Lm).
        replace n with (n - j * K + j * K) in * by lia. remember (n - j * K) as n' eqn:En. clear En n.
        rewrite !touches_shifts in *. rewrite !changes_shifts in C.
        apply -> before_shifts.
        destruct (N.lt_ge_cases n' (2 * K)) as [B | B].
        + apply (raceless_lasting _ _ W x); auto; unfold two, three; lia.
        + destruct (near_start n') as (i & n & -> & Ln).
          assert (1 <= i) by (destruct (N.lt_ge_cases i 1); auto; replace i with 0 in * by lia; lia).
          replace (n + i * K) with (n + K + (i - 1) * K) in *
            by (replace i with (i - 1 + 1) at 2 by lia; lia).
          apply before_later. rewrite touches_shifts in Tn. rewrite changes_shifts in C.
          apply (raceless_lasting _ _ W x); auto; unfold two, three; lia.
      - intros x s t _ _ X Ss St L G m n Rm Rn. destruct (near_start s) as (j & s' & -> & Ls).
        replace t with (t - j * K + j * K) in * by lia. remember (t - j * K) as t' eqn:Et. clear Et t.
        rewrite !starts_shifts in *.
        assert (Lt : t' <= s' + K).
        { destruct (N.le_gt_cases t' (s' + K)) as [| Q]; auto. exfalso.
          apply (G (s' + K + j * K)); try lia. apply starts_shifts.
          replace (s' + K) with (s' + 1 * K) by lia. rewrite starts_shifts. auto. }
        assert (s' + j * K <= m) by apply Rm. assert (t' + j * K <= n) by apply Rn.
        replace m with (m - j * K + j * K) in * by lia. replace n with (n - j * K + j * K) in * by lia.
        rewrite range_shifts in Rm, Rn.
        apply -> before_shifts.
        apply (renewed _ _ W x s' t'); auto; unfold two; try lia.
        intros k H1 H2 H3. apply (G (k + j * K)); try lia. rewrite starts_shifts. auto.
      - intros x n _. apply (written _ _ W); unfold always; auto.
      - intros x s m n _ _ _. apply (raceless _ _ W); unfold always; auto.
      - intros x m n _ _. apply (raceless_lasting _ _ W); unfold always; auto.
      - intros x s t _ _. apply (renewed _ _ W); unfold always; auto.
    Qed.

    (** ... and for interference. *)
    Theorem three_passes_apart : forall x y, apart two x y <-> apart always x y.
    Proof.
      assert (half : forall x y s t, apart two x y -> starts s x -> starts t y -> s <= t ->
        range_before x s y t \/ range_before y t x s).
      { intros x y s t A Ss St L. destruct (near_start s) as (j & s' & -> & Ls).
        replace t with (t - j * K + j * K) in * by lia. remember (t - j * K) as t' eqn:Et. clear Et t.
        rewrite !starts_shifts in *.
        assert (E : exists i t0, t' = t0 + i * K /\ t0 < 2 * K /\ s' <= t0).
        { destruct (N.lt_ge_cases t' (2 * K)) as [B | B].
          - exists 0, t'. lia.
          - destruct (near_start t') as (i & t0 & -> & Lt).
            assert (1 <= i) by (destruct (N.lt_ge_cases i 1); auto; replace i with 0 in * by lia; lia).
            exists (i - 1), (t0 + K). repeat split; try lia.
            replace i with (i - 1 + 1) at 1 by lia. lia. }
        destruct E as (i & t0 & -> & L0 & S0). rewrite starts_shifts in St.
        destruct (A s' t0) as [B | B]; auto; unfold two; try lia.
        - left. intros m n Rm Rn.
          assert (s' + j * K <= m) by apply Rm.
          replace (t0 + i * K + j * K) with (t0 + (i + j) * K) in Rn by lia.
          assert (t0 + (i + j) * K <= n) by apply Rn.
          replace m with (m - j * K + j * K) in * by lia.
          replace n with (n - (i + j) * K + (i + j) * K) in * by lia.
          rewrite range_shifts in Rm, Rn.
          replace (n - (i + j) * K + (i + j) * K) with (n - (i + j) * K + i * K + j * K) by lia.
          apply -> before_shifts. apply before_later. apply B; auto.
        - exfalso. assert (H : before t0 s') by (apply B; apply range_self; auto).
          apply lt_of in H. lia. }
      intros x y. split.
      - intros A s t _ _ Ss St. destruct (N.le_ge_cases s t) as [L | L].
        + apply half; auto.
        + assert (A' : apart two y x) by (intros a b Ha Hb Sa Sb; destruct (A b a); auto).
          destruct (half y x t s A' St Ss L); auto.
      - intros A s t _ _ Ss St. apply A; unfold always; auto.
    Qed.
  End Alike.
End Passes.

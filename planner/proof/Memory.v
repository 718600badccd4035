(** * Executions with memory contents

    Soundness: where any two live ranges with a byte in common are in order, and the accesses within
    one live range that must be in order are, every read returns what its live range's latest write
    wrote, in every execution that respects the order.  Tightness: where two live ranges with a byte
    in common are not in order, some execution destroys a value that is still live.

    Nodes are kernels: they take time, and overlap unless they are in order.  An execution is
    therefore a list of single accesses to bytes; all accesses of a node precede all accesses of a
    node that comes after it, and nothing else is known.  Models what [planner/src/live.rs] calls
    interference, race and reuse. *)

From Coq Require Import NArith List Lia.
Import ListNotations.
Open Scope N_scope.

Section Memory.
  (** The order of the nodes: any strict order that follows the order of issue. *)
  Variable hb : N -> N -> Prop.
  Hypothesis hb_lt : forall a b, hb a b -> a < b.
  Hypothesis hb_trans : forall a b c, hb a b -> hb b c -> hb a c.

  (** Live ranges, each of one item (a part of a buffer).  [forever]: persistent memory. *)
  Variable range : Type.
  Hypothesis range_dec : forall r s : range, {r = s} + {r <> s}.
  Variable item : range -> N.
  Variable forever : range -> Prop.
  (** Node [n] accesses, or even writes, live range [r]. *)
  Variable accesses : N -> range -> Prop.
  Variable writes : N -> range -> Prop.
  Hypothesis writes_accesses : forall n r, writes n r -> accesses n r.

  (** Where the bytes of an item are in the arena. *)
  Variable offset size : N -> N.
  Definition address (r : range) (i : N) : N := offset (item r) + i.

  Definition share (x y : N) : Prop :=
    exists i j, i < size x /\ j < size y /\ offset x + i = offset y + j.

  (** All accesses of the one happen before all accesses of the other. *)
  Definition all_before (r s : range) : Prop :=
    forall a b, accesses a r -> accesses b s -> hb a b.

  (** ** The conditions that the planner proves *)
  Record safe : Prop := {
    (* within a live range: a read is ordered after each earlier write, a write after each earlier
       access *)
    race_free : forall r m n, accesses m r -> accesses n r -> m < n ->
      writes m r \/ writes n r -> hb m n;
    (* live ranges with a byte in common are in order, whole *)
    ordered : forall r s, r <> s -> share (item r) (item s) ->
      (exists n, accesses n r) -> (exists n, accesses n s) ->
      all_before r s \/ all_before s r;
    (* persistent memory is nobody else's *)
    alone : forall r s, r <> s -> forever r -> share (item r) (item s) ->
      (exists n, accesses n r) -> (exists n, accesses n s) -> False
  }.

  (** ** Executions *)
  Inductive operation := Read (value : N) | Write (value : N).
  Record event := Event { by_node : N; of : range; byte : N; op : operation }.
  Definition at_ (e : event) : N := address (of e) (byte e).

  (** The value that was written last where [here] holds. *)
  Fixpoint latest (here : event -> bool) (t : list event) : option N :=
    match t with
    | [] => None
    | e :: rest =>
        match latest here rest with
        | Some v => Some v
        | None => match op e with Write v => if here e then Some v else None | Read _ => None end
        end
    end.

  (** What is in memory at an address, and what the live range [r] has in its byte [i]. *)
  Definition in_memory (t : list event) (a : N) := latest (fun e => at_ e =? a) t.
  Definition in_range (t : list event) (r : range) (i : N) :=
    latest (fun e => if range_dec (of e) r then byte e =? i else false) t.

  (** Memory before the first execution: any contents. *)
  Variable initial : N -> N.
  Definition content (t : list event) (a : N) : N :=
    match in_memory t a with Some v => v | None => initial a end.

  (** An execution that respects the declared accesses, the order, and memory. *)
  Record legal (t : list event) : Prop := {
    declared : forall e, In e t -> accesses (by_node e) (of e) /\ byte e < size (item (of e));
    written : forall e v, In e t -> op e = Write v -> writes (by_node e) (of e);
    in_order : forall l1 e l2 e' l3, t = l1 ++ e :: l2 ++ e' :: l3 -> ~ hb (by_node e') (by_node e);
    contents : forall l1 e l2 v, t = l1 ++ e :: l2 -> op e = Read v -> v = content l1 (at_ e)
  }.

  (** ** Lists *)
  Lemma latest_none : forall here t, latest here t = None ->
    forall e v, In e t -> op e = Write v -> here e = false.
  Proof.
    induction t as [| e t IH]; simpl; intros N0 e' v []; intros O.
    - subst e'. destruct (latest here t); try discriminate. rewrite O in N0.
      destruct (here e); auto; discriminate.
    - destruct (latest here t) eqn:E; try discriminate. eapply IH; eauto.
  Qed.

  Lemma latest_some : forall here t v, latest here t = Some v ->
    exists l1 e l2, t = l1 ++ e :: l2 /\ op e = Write v /\ here e = true /\ latest here l2 = None.
  Proof.
    induction t as [| e t IH]; simpl; intros v H; try discriminate.
    destruct (latest here t) eqn:E.
    - injection H as ->. destruct (IH v eq_refl) as (l1 & w & l2 & -> & O & Hw & N0).
      exists (e :: l1), w, l2. auto.
    - destruct (op e) eqn:O; try discriminate. destruct (here e) eqn:Hh; try discriminate.
      injection H as ->. exists [], e, t. auto.
  Qed.

  Lemma latest_split : forall here l1 e l2 v, op e = Write v -> here e = true ->
    latest here l2 = None -> latest here (l1 ++ e :: l2) = Some v.
  Proof.
    intros here l1 e l2 v O Hh N0. induction l1 as [| x l1 IH]; simpl.
    - rewrite N0, O, Hh. reflexivity.
    - rewrite IH. reflexivity.
  Qed.

  Lemma latest_weaker : forall here there t, (forall e, here e = true -> there e = true) ->
    latest there t = None -> latest here t = None.
  Proof.
    induction t as [| e t IH]; simpl; intros W N0; auto.
    destruct (latest there t); try discriminate. rewrite IH; auto.
    destruct (op e); auto. destruct (here e) eqn:Hh; auto.
    rewrite (W e Hh) in N0. discriminate.
  Qed.

  Lemma here_memory : forall e r i, (if range_dec (of e) r then byte e =? i else false) = true ->
    of e = r /\ byte e = i.
  Proof. intros e r i H. destruct (range_dec (of e) r); [split; auto; now apply N.eqb_eq | discriminate]. Qed.

  (** Two events in a list: one comes first. *)
  Lemma before_or_after : forall (A : Type) (t l1 l2 k1 k2 : list A) a b,
    t = l1 ++ a :: l2 -> t = k1 ++ b :: k2 ->
    (l1 = k1 /\ a = b) \/ (exists m, t = l1 ++ a :: m ++ b :: k2 /\ k1 = l1 ++ a :: m)
    \/ (exists m, t = k1 ++ b :: m ++ a :: l2 /\ l1 = k1 ++ b :: m).
  Proof.
    intros A t l1. revert t. induction l1 as [| x l1 IH]; intros t l2 k1 k2 a b E1 E2.
    - destruct k1 as [| y k1]; simpl in *.
      + rewrite E2 in E1. injection E1 as -> ->. auto.
      + right. left. rewrite E2 in E1. injection E1 as -> E. exists k1. rewrite E2. auto.
    - destruct k1 as [| y k1]; simpl in *.
      + right. right. rewrite E1 in E2. injection E2 as -> E. exists l1. rewrite E1. auto.
      + destruct t as [| z t]; try discriminate. injection E1 as -> E1. injection E2 as <- E2.
        destruct (IH t l2 k1 k2 a b E1 E2) as [[-> ->] | [(m & E & ->) | (m & E & ->)]].
        * auto.
        * right. left. exists m. rewrite E. auto.
        * right. right. exists m. rewrite E. auto.
  Qed.

  (** ** Soundness of reuse *)
  Section Sound.
    Hypothesis S : safe.

    Lemma shares_itself : forall r s i j, i < size (item r) -> j < size (item s) ->
      address r i = address s j -> share (item r) (item s).
    Proof. intros r s i j Hi Hj E. exists i, j. auto. Qed.

    (** Nothing of another live range is written where a live range has a value. *)
    Lemma own_write : forall t l1 e l2 w, legal t -> t = l1 ++ e :: l2 ->
      (exists v, op w = Write v) -> In w l1 -> at_ w = at_ e ->
      (forall u x, In u l1 -> op u = Write x -> of u = of e -> byte u = byte e ->
         exists k1 k2, l1 = k1 ++ w :: k2 /\ In u (k1 ++ [w])) ->
      (exists u x, In u l1 /\ op u = Write x /\ of u = of e /\ byte u = byte e) \/ forever (of e) ->
      of w = of e.
    Proof.
      intros t l1 e l2 w L E (vw & Ow) Iw A Last Some_.
      destruct (range_dec (of w) (of e)) as [Q | Q]; auto. exfalso.
      assert (Ie : In e t) by (rewrite E; apply in_or_app; right; left; auto).
      assert (It : In w t) by (rewrite E; apply in_or_app; left; auto).
      destruct (declared t L e Ie) as (De & Be). destruct (declared t L w It) as (Dw & Bw).
      assert (Sh : share (item (of w)) (item (of e))).
      { exact (shares_itself (of w) (of e) (byte w) (byte e) Bw Be A). }
      assert (Sh' : share (item (of e)) (item (of w))).
      { exact (shares_itself (of e) (of w) (byte e) (byte w) Be Bw (eq_sym A)). }
      destruct Some_ as [(u & x & Iu & Ou & Fu & Bu) | F].
      2: { apply (alone S (of e) (of w)); eauto. }
      destruct (Last u x Iu Ou Fu Bu) as (k1 & k2 & El & Iu').
      apply in_app_or in Iu'. destruct Iu' as [Iu' | [<- | []]]; [| congruence].
      apply in_split in Iu'. destruct Iu' as (j1 & j2 & Ek).
      assert (Eu : t = j1 ++ u :: j2 ++ w :: (k2 ++ e :: l2)).
      { rewrite E, El, Ek. repeat (rewrite <- app_assoc; simpl). reflexivity. }
      assert (Ew : t = k1 ++ w :: k2 ++ e :: l2).
      { rewrite E, El. repeat (rewrite <- app_assoc; simpl). reflexivity. }
      destruct (ordered S (of w) (of e) Q Sh (ex_intro _ _ Dw) (ex_intro _ _ De)) as [O | O].
      - (* the other range comes before: then before the write of this one, too *)
        apply (in_order t L j1 u j2 w (k2 ++ e :: l2) Eu).
        apply O; auto. rewrite <- Fu. apply writes_accesses.
        apply (written t L u x); auto. rewrite Eu. apply in_or_app. right. left. auto.
      - (* it comes after: then after this read, too *)
        apply (in_order t L k1 w k2 e l2 Ew). apply O; auto.
    Qed.

    (** Every read returns what its live range's latest write wrote. *)
    Theorem reuse_is_sound : forall t l1 e l2 v w, legal t -> t = l1 ++ e :: l2 ->
      op e = Read v -> in_range l1 (of e) (byte e) = Some w -> v = w.
    Proof.
      intros t l1 e l2 v w L E O R.
      rewrite (contents t L l1 e l2 v E O). unfold content.
      destruct (latest_some _ _ _ R) as (j1 & u & j2 & El & Ou & Hu & Nu).
      apply here_memory in Hu. destruct Hu as (Fu & Bu).
      assert (Au : at_ u = at_ e) by (unfold at_; congruence).
      destruct (in_memory l1 (at_ e)) as [x |] eqn:M.
      - destruct (latest_some _ _ _ M) as (k1 & y & k2 & El' & Oy & Hy & Ny).
        apply N.eqb_eq in Hy.
        assert (Q : of y = of e).
        { apply (own_write t l1 e l2 y L E); eauto.
          - rewrite El'. apply in_or_app. right. left. auto.
          - intros u' x' Iu Ou' Fu' Bu'. exists k1, k2. split; auto.
            rewrite El' in Iu. apply in_app_or in Iu. apply in_or_app.
            destruct Iu as [Iu | [<- | Iu]]; [auto | right; left; auto |].
            exfalso. pose proof (latest_none _ _ Ny u' x' Iu Ou') as C. simpl in C.
            rewrite (proj2 (N.eqb_eq _ _)) in C; [discriminate | unfold at_; congruence].
          - left. exists u, w. repeat split; auto. rewrite El. apply in_or_app. right. left. auto. }
        assert (B : byte y = byte e) by (unfold at_, address in Hy; rewrite Q in Hy; lia).
        assert (R' : in_range l1 (of e) (byte e) = Some x).
        { unfold in_range. rewrite El'. apply latest_split; auto.
          - destruct (range_dec (of y) (of e)); [now apply N.eqb_eq | congruence].
          - eapply latest_weaker; [| exact Ny]. intros z Hz. apply here_memory in Hz.
            destruct Hz. apply N.eqb_eq. unfold at_. congruence. }
        congruence.
      - exfalso. assert (C : (at_ u =? at_ e) = false).
        { eapply (latest_none _ _ M u w); auto. rewrite El. apply in_or_app. right. left. auto. }
        apply N.eqb_neq in C. auto.
    Qed.

    (** Persistent memory that was never written still has its initial contents. *)
    Theorem persistent_keeps : forall t l1 e l2 v, legal t -> t = l1 ++ e :: l2 ->
      op e = Read v -> forever (of e) -> in_range l1 (of e) (byte e) = None -> v = initial (at_ e).
    Proof.
      intros t l1 e l2 v L E O F R.
      rewrite (contents t L l1 e l2 v E O). unfold content.
      destruct (in_memory l1 (at_ e)) as [x |] eqn:M; auto. exfalso.
      destruct (latest_some _ _ _ M) as (k1 & y & k2 & El' & Oy & Hy & Ny).
      apply N.eqb_eq in Hy.
      assert (Iy : In y l1) by (rewrite El'; apply in_or_app; right; left; auto).
      destruct (range_dec (of y) (of e)) as [Q | Q].
      - assert (B : byte y = byte e) by (unfold at_, address in Hy; rewrite Q in Hy; lia).
        pose proof (latest_none _ _ R y x Iy Oy) as C. simpl in C.
        destruct (range_dec (of y) (of e)); [apply N.eqb_neq in C; auto | auto].
      - assert (It : In y t) by (rewrite E; apply in_or_app; left; auto).
        assert (Ie : In e t) by (rewrite E; apply in_or_app; right; left; auto).
        destruct (declared t L e Ie) as (De & Be). destruct (declared t L y It) as (Dy & By).
        apply (alone S (of e) (of y)); eauto.
        exact (shares_itself (of e) (of y) (byte e) (byte y) Be By (eq_sym Hy)).
    Qed.

    (** The write that a read sees is the one that it would see in the order of issue: it is by no
        later node, and no node between the two writes the byte, ever. *)
    Theorem reads_as_issued : forall t l1 u j2 e l2 v, legal t ->
      t = (l1 ++ u :: j2) ++ e :: l2 -> op u = Write v -> of u = of e -> byte u = byte e ->
      in_range j2 (of e) (byte e) = None -> by_node u <= by_node e /\
      forall z x, In z t -> op z = Write x -> of z = of e -> byte z = byte e ->
        by_node u < by_node z -> by_node e <= by_node z.
    Proof.
      intros t l1 u j2 e l2 v L E Ou Fu Bu N0.
      assert (Iu : In u t) by (rewrite E; apply in_or_app; left; apply in_or_app; right; left; auto).
      assert (Ie : In e t) by (rewrite E; apply in_or_app; right; left; auto).
      destruct (declared t L e Ie) as (De & Be). destruct (declared t L u Iu) as (Du & Bu').
      pose proof (written t L u v Iu Ou) as Wu. rewrite Fu in Du, Wu.
      assert (E1 : t = l1 ++ u :: j2 ++ e :: l2) by (rewrite E, <- app_assoc; reflexivity).
      split.
      - destruct (N.le_gt_cases (by_node u) (by_node e)) as [G | G]; auto. exfalso.
        apply (in_order t L l1 u j2 e l2 E1). apply (race_free S (of e)); auto.
      - intros z x Iz Oz Fz Bz G.
        destruct (N.le_gt_cases (by_node e) (by_node z)) as [G' | G']; auto. exfalso.
        destruct (declared t L z Iz) as (Dz & _). pose proof (written t L z x Iz Oz) as Wz.
        rewrite Fz in Dz, Wz.
        assert (H1 : hb (by_node u) (by_node z)) by (apply (race_free S (of e)); auto).
        assert (H2 : hb (by_node z) (by_node e)) by (apply (race_free S (of e)); auto).
        apply in_split in Iz. destruct Iz as (k1 & k2 & Ez).
        destruct (before_or_after _ t (l1 ++ u :: j2) l2 k1 k2 e z E Ez)
          as [[Ek ->] | [(m & Em & _) | (m & Em & Ek)]].
        + exact (N.lt_irrefl _ G').
        + exact (in_order t L _ _ _ _ _ Em H2).
        + (* between the start and the read: after [u] it would be seen, before it is out of order *)
          destruct (before_or_after _ (l1 ++ u :: j2) l1 j2 k1 m u z eq_refl Ek)
            as [[_ ->] | [(m' & Em' & Ek') | (m' & Em' & El)]].
          * lia.
          * assert (Ij : In z j2).
            { rewrite Em' in Ek. assert (J : l1 ++ u :: j2 = l1 ++ u :: m' ++ z :: m) by congruence.
              apply app_inv_head in J. injection J as ->. apply in_or_app. right. left. auto. }
            pose proof (latest_none _ _ N0 z x Ij Oz) as C. simpl in C.
            destruct (range_dec (of z) (of e)); [apply N.eqb_neq in C; auto | auto].
          * apply (in_order t L k1 z m' u (j2 ++ e :: l2)); auto.
            rewrite E1, El. repeat (rewrite <- app_assoc; simpl). reflexivity.
    Qed.
  End Sound.
  (** ** Tightness

      The executions below are short: other nodes run, but access nothing. *)
  Section Tight.
    (** [first r] starts the live range [r]: it writes it, and comes before its other accesses. *)
    Variable first : range -> N.
    Hypothesis first_writes : forall r, writes (first r) r.
    Hypothesis first_before : forall r n, accesses n r -> n = first r \/ hb (first r) n.

    (** Some access of [r] finds in memory what another live range wrote, and not what its own
        latest write wrote; a read returns that. *)
    Definition destroyed (t : list event) (r : range) : Prop :=
      exists l1 e l2 v w, t = l1 ++ e :: l2 /\ of e = r /\
        in_range l1 r (byte e) = Some v /\ content l1 (at_ e) = w /\ v <> w.

    Lemma three : forall r s i j x y z (o : operation), r <> s -> i < size (item r) ->
      j < size (item s) -> address r i = address s j ->
      writes x r -> writes y s -> accesses z r ->
      ~ hb y x -> ~ hb z x -> ~ hb z y ->
      (o = Read 1 \/ (exists v, o = Write v) /\ writes z r) ->
      let t := [Event x r i (Write 0); Event y s j (Write 1); Event z r i o] in
      legal t /\ destroyed t r.
    Proof.
      intros r s i j x y z o D Bi Bj E Wx Wy Az H1 H2 H3 O. split.
      - constructor.
        + intros e [<- | [<- | [<- | []]]]; simpl; auto.
        + intros e v [<- | [<- | [<- | []]]]; simpl; auto.
          intros Q. destruct O as [-> | [_ W]]; [discriminate | auto].
        + intros l1 e l2 e' l3 Q.
          destruct l1 as [| ? [| ? [| ? [|]]]]; injection Q; intros; subst; clear Q;
            destruct l2 as [| ? [| ? [|]]]; try discriminate; injection H; intros; subst; simpl; auto;
            try (injection H0; intros; subst; simpl; auto); try discriminate.
        + intros l1 e l2 v Q R.
          destruct l1 as [| ? [| ? [| ? [|]]]]; injection Q; intros; subst; simpl in *; try discriminate.
          destruct O as [-> | [(v' & ->) _]]; try discriminate. injection R as <-.
          unfold content, in_memory, at_. simpl. rewrite <- E, N.eqb_refl. reflexivity.
      - exists [Event x r i (Write 0); Event y s j (Write 1)], (Event z r i o), [], 0, 1.
        repeat split; auto; simpl.
        + unfold in_range. simpl. destruct (range_dec s r); [congruence |].
          destruct (range_dec r r); [| congruence]. rewrite N.eqb_refl. reflexivity.
        + unfold content, in_memory, at_. simpl. rewrite <- E, N.eqb_refl. reflexivity.
        + discriminate.
    Qed.

    (** Live range [r] is not wholly before [s], shown by one access.  (The first access of [s] comes
        before its others, so this is all that [all_before] can fail by.) *)
    Definition not_before (r s : range) : Prop := exists a, accesses a r /\ ~ hb a (first s).

    Lemma before_first : forall r s, all_before r s <-> forall a, accesses a r -> hb a (first s).
    Proof.
      intros r s. split.
      - intros B a A. apply B; auto.
      - intros B a b A1 A2. destruct (first_before s b A2) as [-> | H]; auto.
        eapply hb_trans; eauto.
    Qed.

    (** In some execution an access of node [n] finds what another live range wrote.  It may be a read:
        by a step that reads, or by the first step of the range, which reads back what it wrote. *)
    Definition finds_foreign (n : N) (r : range) : Prop :=
      accesses n r /\ forall o, o = Read 1 \/ (exists v, o = Write v) /\ writes n r ->
        exists l1 e, legal (l1 ++ [e]) /\ destroyed (l1 ++ [e]) r /\
          by_node e = n /\ of e = r /\ op e = o.

    (** Two live ranges that share a byte and are not in order, whatever the layout that makes them
        share it: some execution destroys a value of one of them while it is live. *)
    Theorem reuse_is_tight : forall r s, r <> s -> share (item r) (item s) ->
      {hb (first r) (first s)} + {~ hb (first r) (first s)} ->
      {hb (first s) (first r)} + {~ hb (first s) (first r)} ->
      not_before r s -> not_before s r ->
      (exists n, finds_foreign n r) \/ (exists n, finds_foreign n s).
    Proof.
      intros r s D (i & j & Bi & Bj & E) Drs Dsr (a & Aa & Na) (b & Ab & Nb).
      assert (G : forall q u i j n, q <> u -> i < size (item q) -> j < size (item u) ->
                address q i = address u j -> ~ hb (first u) (first q) ->
                accesses n q -> ~ hb n (first q) -> ~ hb n (first u) -> finds_foreign n q).
      { clear r s D i j Bi Bj E Drs Dsr a Aa Na b Ab Nb. intros q u i j n D Bi Bj E H1 A H2 H3. split; auto. intros o O.
        destruct (three q u i j (first q) (first u) n o) as (L & X); auto.
        exists [Event (first q) q i (Write 0); Event (first u) u j (Write 1)], (Event n q i o).
        auto. }
      assert (I : forall n, ~ hb n n) by (intros n H; apply hb_lt in H; lia).
      assert (NF : forall q n, accesses n q -> ~ hb n (first q)).
      { intros q n A H. destruct (first_before q n A) as [-> | H']; [exact (I _ H) |].
        exact (I _ (hb_trans _ _ _ H H')). }
      destruct Drs as [H | H].
      - left. exists a. apply (G r s i j); auto.
        intros H'. exact (I _ (hb_trans _ _ _ H H')).
      - destruct Dsr as [H' | H'].
        + right. exists b. apply (G s r j i); auto.
        + left. exists (first r). apply (G r s i j); auto.
    Qed.
  End Tight.

  (** Two accesses of one live range in no order, one of them a write: each order of the two is an
      execution, and where the other reads it sees the value in the one and not in the other. *)
  Theorem race_is_real : forall r i m n, i < size (item r) -> accesses m r -> writes n r ->
    ~ hb m n -> ~ hb n m -> forall v, v <> initial (address r i) ->
      legal [Event n r i (Write v); Event m r i (Read v)] /\
      legal [Event m r i (Read (initial (address r i))); Event n r i (Write v)].
  Proof.
    intros r i m n B A W H1 H2 v V. split; constructor.
    1,5: intros e [<- | [<- | []]]; simpl; auto.
    1,4: intros e x [<- | [<- | []]]; simpl; auto; discriminate.
    1,3: intros l1 e l2 e' l3 Q;
      destruct l1 as [| ? [| ? [|]]]; injection Q; intros; subst; clear Q;
      destruct l2 as [| ? [|]]; try discriminate; injection H; intros; subst; simpl; auto.
    - intros l1 e l2 x Q R.
      destruct l1 as [| ? [| ? [|]]]; injection Q; intros; subst; simpl in *; try discriminate.
      injection R as <-. unfold content, in_memory, at_. simpl. rewrite N.eqb_refl. reflexivity.
    - intros l1 e l2 x Q R.
      destruct l1 as [| ? [| ? [|]]]; injection Q; intros; subst; simpl in *; try discriminate.
      injection R as <-. reflexivity.
  Qed.
End Memory.

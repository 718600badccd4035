(** * Happens-before

    What streams and events guarantee, as the section "Edges" of the pool spec says it, over nodes
    numbered in the order of issue.  Models [planner/src/schedule.rs]. *)

From Coq Require Import NArith List Lia Wellfounded.
Open Scope N_scope.

Inductive launch := Full | Dependent | Early.

(** A node, for its order: a step in a layer of a pass. *)
Record node := Node {
  stream : nat;
  kind : launch;
  waits : list N  (* the nodes after which the events that it waits for were recorded *)
}.

Section Order.
  Variable nd : N -> node.
  (** Only what was issued before can be waited for. *)
  Hypothesis waits_back : forall n s, In s (waits (nd n)) -> s < n.

  Definition same (a b : N) : Prop := stream (nd a) = stream (nd b).

  (** [p] is issued just before [n] on the stream of [n]. *)
  Definition prev (p n : N) : Prop :=
    p < n /\ same p n /\ forall k, p < k -> k < n -> ~ same k n.

  (** The order.  Each rule but the last is an edge of the spec. *)
  Inductive hb : N -> N -> Prop :=
  | hb_full : forall m n, kind (nd n) = Full -> m < n -> same m n -> hb m n
  | hb_dependent : forall p n, kind (nd n) = Dependent -> prev p n -> hb p n
  | hb_early : forall k p n, kind (nd n) = Early -> prev p n -> hb k p -> hb k n
  | hb_event : forall m s n, In s (waits (nd n)) -> m <= s -> same m s -> hb m n
  | hb_trans : forall a b c, hb a b -> hb b c -> hb a c.

  (** Order follows the order of issue, so it is a strict partial order. *)
  Lemma hb_lt : forall a b, hb a b -> a < b.
  Proof.
    intros a b H. induction H as [m n K L S | p n K P | k p n K P H IH | m s n W L S | ]; try lia.
    - apply P.
    - destruct P. lia.
    - apply waits_back in W. lia.
  Qed.

  Lemma hb_irrefl : forall a, ~ hb a a.
  Proof. intros a H. apply hb_lt in H. lia. Qed.

  Lemma prev_exists : forall m n, m < n -> same m n -> exists p, prev p n /\ m <= p.
  Proof.
    intros m n. remember (n - m) as d eqn:E. revert m E.
    induction d as [d IH] using (well_founded_induction N.lt_wf_0).
    intros m E L S.
    assert (D : (exists k, m < k /\ k < n /\ same k n) \/ (forall k, m < k -> k < n -> ~ same k n)).
    { clear IH E S. unfold same.
      assert (G : forall x, (exists k, m < k /\ k < x /\ stream (nd k) = stream (nd n)) \/
                            (forall k, m < k -> k < x -> stream (nd k) <> stream (nd n))).
      { induction x using N.peano_ind.
        - right. lia.
        - destruct IHx as [(k & ? & ? & ?) | R].
          + left. exists k. repeat split; auto. lia.
          + destruct (N.lt_decidable m x) as [Hx | Hx].
            * destruct (PeanoNat.Nat.eq_dec (stream (nd x)) (stream (nd n))) as [Q | Q].
              -- left. exists x. repeat split; auto. lia.
              -- right. intros k K1 K2. destruct (N.eq_dec k x); [subst; auto | apply R; lia].
            * right. intros k K1 K2. apply R; lia. }
      destruct (G n) as [(k & ? & ? & ?) | R]; [left; eauto | right; auto]. }
    destruct D as [(k & K1 & K2 & K3) | R].
    - destruct (IH (n - k) ltac:(lia) k eq_refl K2 K3) as (p & P & Q).
      exists p. split; auto. lia.
    - exists m. split; [| lia]. split; [| split]; auto.
  Qed.

  Lemma prev_unique : forall p q n, prev p n -> prev q n -> p = q.
  Proof.
    intros p q n (Lp & Sp & Gp) (Lq & Sq & Gq).
    destruct (N.lt_trichotomy p q) as [L | [E | L]]; auto.
    - exfalso. exact (Gp q L Lq Sq).
    - exfalso. exact (Gq p L Lp Sp).
  Qed.

  (** What the event recorded after [s] covers: all that was issued on its stream up to [s], and all
      that those come after. *)
  Definition covers (s m : N) : Prop :=
    exists j, j <= s /\ same j s /\ (m = j \/ hb m j).

  (** What a node comes after by its place on its stream. *)
  Definition by_stream (m n : N) : Prop :=
    exists p, prev p n /\
      match kind (nd n) with
      | Full => covers p m
      | Dependent => m = p \/ hb m p
      | Early => hb m p
      end.

  (** One step back from a node: by its stream, or by an event. *)
  Lemma hb_inv : forall m n, hb m n <-> by_stream m n \/ exists s, In s (waits (nd n)) /\ covers s m.
  Proof.
    intros m n. split.
    - intros H. induction H as [m n K L S | p n K P | k p n K P H IH | m s n W L S | a b c H1 IH1 H2 IH2].
      + left. destruct (prev_exists m n L S) as (p & P & Q). exists p. split; auto.
        rewrite K. exists m. repeat split; auto. destruct P as (_ & E & _).
        unfold same in *. congruence.
      + left. exists p. split; auto. rewrite K. auto.
      + left. exists p. split; auto. rewrite K. auto.
      + right. exists s. split; auto. exists m. auto.
      + destruct IH2 as [(p & P & Q) | (s & W & j & L & S & Q)].
        * left. exists p. split; auto. destruct (kind (nd c)).
          -- destruct Q as (j & L & S & [-> | Q]); exists j; repeat split; auto.
             right. eapply hb_trans; eauto.
          -- destruct Q as [-> | Q]; right; auto. eapply hb_trans; eauto.
          -- eapply hb_trans; eauto.
        * right. exists s. split; auto. exists j. repeat split; auto.
          destruct Q as [-> | Q]; right; auto. eapply hb_trans; eauto.
    - intros [(p & P & Q) | (s & W & j & L & S & Q)].
      + destruct (kind (nd n)) eqn:K.
        * destruct Q as (j & L & S & Q). destruct P as (P1 & P2 & P3).
          assert (hb j n) by (apply hb_full; auto; [lia | unfold same in *; congruence]).
          destruct Q as [-> | Q]; auto. eapply hb_trans; eauto.
        * destruct Q as [-> | Q]; [apply hb_dependent; auto |].
          eapply hb_trans; [exact Q | apply hb_dependent; auto].
        * eapply hb_early; eauto.
      + assert (hb j n) by (eapply hb_event; eauto).
        destruct Q as [-> | Q]; auto. eapply hb_trans; eauto.
  Qed.

  (** What a node comes after never shrinks along its stream, whatever the launches. *)
  Lemma hb_prev : forall k p n, prev p n -> hb k p -> hb k n.
  Proof.
    intros k p n P H. apply hb_inv. left. exists p. split; auto.
    destruct (kind (nd n)); auto. exists p. split; [lia |]. split; [reflexivity | auto].
  Qed.

  Lemma hb_along : forall n m k, m <= n -> same m n -> hb k m -> hb k n.
  Proof.
    induction n as [n IH] using (well_founded_induction N.lt_wf_0).
    intros m k L S H. destruct (N.eq_dec m n) as [-> | D]; auto.
    destruct (prev_exists m n ltac:(lia) S) as (p & P & Q).
    apply (hb_prev k p n P). destruct P as (P1 & P2 & P3).
    apply (IH p P1 m k Q); auto. unfold same in *. congruence.
  Qed.

  Lemma covers_inv : forall s m, covers s m <->
    m = s \/ hb m s \/ exists p, prev p s /\ covers p m.
  Proof.
    intros s m. split.
    - intros (j & L & S & Q). destruct (N.eq_dec j s) as [-> | D].
      + destruct Q; auto.
      + right. right. destruct (prev_exists j s ltac:(lia) S) as (p & P & Q').
        exists p. split; auto. exists j. repeat split; auto. destruct P as (_ & E & _).
        unfold same in *. congruence.
    - intros [-> | [H | (p & (L & S & _) & j & Lj & Sj & Q)]].
      + exists s. repeat split; auto. lia.
      + exists s. repeat split; auto. lia.
      + exists j. repeat split; auto; [lia | unfold same in *; congruence].
  Qed.
End Order.

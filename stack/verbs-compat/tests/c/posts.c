/*
 * ibv_post_send(3), ibv_post_recv(3), ibv_post_srq_recv(3): a list is posted up to the first request that fails, which `bad_wr`
 * names; those before it are carried out, and it and those behind it are not. Run by scripts/verbs-programs.sh; takes the
 * device's address as its argument. Prints `posts: N checks passed`.
 */
#include "pair.h"

enum { EVERYTHING = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ, LIST = 40, DEPTH = 64 };

static char buffer[4096], there[4096];
static struct ibv_mr *mr, *far_mr;
static struct ibv_sge element, many[32];

/* What a request is refused for. */
enum fault { OPCODE, NO_SUCH_OPCODE, ELEMENTS, TOO_MANY, NEGATIVE, NO_LIST, LONG_INLINE, READ_OF_TWO, ATOMIC_OF_NONE, FAULTS };

static const int ERRORS[FAULTS] = {[OPCODE] = EOPNOTSUPP, [NO_SUCH_OPCODE] = EINVAL, [ELEMENTS] = EINVAL, [TOO_MANY] = EINVAL,
                                   [NEGATIVE] = EINVAL, [NO_LIST] = EINVAL, [LONG_INLINE] = EINVAL, [READ_OF_TWO] = EINVAL,
                                   [ATOMIC_OF_NONE] = EINVAL};

static void spoil(struct ibv_send_wr *wr, enum fault fault) {
    switch (fault) {
        case OPCODE: wr->opcode = IBV_WR_SEND_WITH_IMM; break;
        case NO_SUCH_OPCODE: wr->opcode = 1000; break;
        case ELEMENTS: wr->num_sge = 5, wr->sg_list = many; break;
        case TOO_MANY: wr->num_sge = 1 << 20; break;
        case NEGATIVE: wr->num_sge = -1; break;
        case NO_LIST: wr->sg_list = NULL; break;
        case LONG_INLINE: wr->send_flags |= IBV_SEND_INLINE, many[0].length = 1000, wr->sg_list = many; break;
        case READ_OF_TWO: wr->opcode = IBV_WR_RDMA_READ, wr->num_sge = 2, wr->sg_list = many; break;
        default: wr->opcode = IBV_WR_ATOMIC_FETCH_AND_ADD, wr->num_sge = 0;
    }
}

/* The request at `wrong` of a list of Writes is refused. */
static void check_sends(struct pair *pair, enum fault fault, int wrong) {
    struct ibv_send_wr list[LIST], *bad = NULL;
    for (int at = 0; at < LIST; at++) {
        list[at] = (struct ibv_send_wr){.wr_id = at, .next = at + 1 < LIST ? &list[at + 1] : NULL, .sg_list = &element,
                                        .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE, .send_flags = IBV_SEND_SIGNALED};
        list[at].wr.rdma.remote_addr = (uintptr_t)there + at;
        list[at].wr.rdma.rkey = far_mr->rkey;
    }
    memset(there, 0, sizeof there);
    many[0].length = 1;
    spoil(&list[wrong], fault);
    CHECK(ibv_post_send(pair->near->qp, list, &bad) == ERRORS[fault] && bad == &list[wrong]);
    for (int at = 0; at < wrong; at++) CHECK(take(pair->near_cq, at).status == IBV_WC_SUCCESS);
    take_nothing(pair->near_cq);
    for (int at = 0; at < LIST; at++) CHECK(there[at] == (at < wrong ? 'x' : 0));
    /* Without a place for it. */
    CHECK(ibv_post_send(pair->near->qp, &list[wrong], NULL) == ERRORS[fault]);
}

/* A queue that is full refuses the first request that has no room, and takes it when there is room. */
static void check_full_queues(struct pair *pair) {
    struct ibv_recv_wr receives[DEPTH + 8], *bad = NULL;
    int count = DEPTH + 8;
    for (int at = 0; at < count; at++)
        receives[at] = (struct ibv_recv_wr){.wr_id = 100 + at, .next = at + 1 < count ? &receives[at + 1] : NULL};
    CHECK(ibv_post_recv(pair->far->qp, receives, &bad) == ENOMEM && bad == &receives[DEPTH]);
    CHECK(ibv_post_recv(pair->far->qp, bad, &bad) == ENOMEM && bad == &receives[DEPTH]);
    CHECK(post(pair->near->qp, IBV_WR_SEND, 7, mr, 0, 0, 0) == 0 && take(pair->near_cq, 7).status == IBV_WC_SUCCESS);
    CHECK(take(pair->far_cq, 100).status == IBV_WC_SUCCESS);
    CHECK(ibv_post_recv(pair->far->qp, bad, &bad) == ENOMEM && bad == &receives[DEPTH + 1]);
    for (int at = 1; at <= DEPTH; at++) {
        CHECK(post(pair->near->qp, IBV_WR_SEND, at, mr, 0, 0, 0) == 0 && take(pair->near_cq, at).status == IBV_WC_SUCCESS);
        CHECK(take(pair->far_cq, 100 + at).status == IBV_WC_SUCCESS);
    }
}

static void spoil_receive(struct ibv_recv_wr *wr, int kind) {
    if (kind == 0) wr->num_sge = 1 << 20;
    if (kind == 1) wr->num_sge = -1;
    if (kind == 2) wr->num_sge = 1, wr->sg_list = NULL;
    if (kind == 3) wr->num_sge = 5, wr->sg_list = many;
}

/* The same for receives, of a queue pair and of a shared queue. */
static void check_receives(struct ibv_qp *qp, struct ibv_srq *srq, int kind, int wrong) {
    struct ibv_recv_wr list[LIST], *bad = NULL;
    for (int at = 0; at < LIST; at++)
        list[at] = (struct ibv_recv_wr){.wr_id = 200 + at, .next = at + 1 < LIST ? &list[at + 1] : NULL};
    spoil_receive(&list[wrong], kind);
    int error = srq ? ibv_post_srq_recv(srq, list, &bad) : ibv_post_recv(qp, list, &bad);
    CHECK(error == EINVAL && bad == &list[wrong]);
    CHECK((srq ? ibv_post_srq_recv(srq, bad, NULL) : ibv_post_recv(qp, bad, NULL)) == EINVAL);
}

static void check_posted_receives(struct pair *pair, int count) {
    for (int at = 0; at < count; at++) {
        CHECK(post(pair->near->qp, IBV_WR_SEND, at, mr, 0, 0, 0) == 0 && take(pair->near_cq, at).status == IBV_WC_SUCCESS);
        CHECK(take(pair->far_cq, 200 + at).status == IBV_WC_SUCCESS);
    }
    take_nothing(pair->far_cq);
}

static const int PLACES[] = {0, 1, 15, 16, 17, LIST - 1};

int main(int count, char **arguments) {
    begin(count, arguments);
    memset(buffer, 'x', sizeof buffer);
    CHECK((mr = ibv_reg_mr(pd, buffer, sizeof buffer, EVERYTHING)) && (far_mr = ibv_reg_mr(pd, there, sizeof there, EVERYTHING)));
    element = (struct ibv_sge){.addr = (uintptr_t)buffer, .length = 1, .lkey = mr->lkey};
    for (int at = 0; at < 32; at++) many[at] = element;
    struct queues queues = {.sends = DEPTH, .receives = DEPTH, .elements = 4};
    struct pair pair = open_pair_with(7950, queues);
    for (enum fault fault = 0; fault < FAULTS; fault++)
        for (int place = 0; place < 6; place++) check_sends(&pair, fault, PLACES[place]);
    check_full_queues(&pair);
    struct ibv_srq_init_attr shared = {.attr = {.max_wr = DEPTH, .max_sge = 4}};
    queues.far_srq = ibv_create_srq(pd, &shared);
    CHECK(queues.far_srq);
    struct pair other = open_pair_with(7951, queues);
    for (int kind = 0; kind < 4; kind++) {
        for (int place = 0; place < 6; place++) {
            check_receives(pair.far->qp, NULL, kind, PLACES[place]);
            check_posted_receives(&pair, PLACES[place]);
            check_receives(NULL, queues.far_srq, kind, PLACES[place]);
            check_posted_receives(&other, PLACES[place]);
        }
    }
    close_pair(&other);
    CHECK(ibv_destroy_srq(queues.far_srq) == 0);
    close_pair(&pair);
    CHECK(ibv_dereg_mr(mr) == 0 && ibv_dereg_mr(far_mr) == 0 && ibv_dealloc_pd(pd) == 0);
    printf("posts: %d checks passed\n", checks);
    return 0;
}

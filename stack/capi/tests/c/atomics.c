/* Words that the program and its peers change together: every sum is exact, for any owner. */
#include "check.h"

static struct pair pair;

enum { WORD = 64, REMOTE = 2000, OWN = 200, BATCH = 10 };

static uint64_t word_at(const unsigned char *pool, size_t offset)
{
    uint64_t word;
    memcpy(&word, pool + offset, sizeof word);
    return word;
}

static uint64_t told(const struct iw_wc *wc)
{
    uint64_t before;
    memcpy(&before, wc->immediate, sizeof before);
    return before;
}

/* Runs one operation on the far end's own word, and answers what it was. */
static uint64_t own(const struct iw_atomic_op *op, size_t offset)
{
    ANSWERS(IW_OK, iw_atomic(pair.far.ctx, pair.far.cq, 7, pair.far.mr, offset, op));
    await_completion(&pair, &pair.far, IW_WC_ATOMIC, 7);
    CHECK(pair.far.wc.status == IW_WC_SUCCESS && pair.far.wc.flags == IW_WC_FLAG_LOCAL_ATOMIC && pair.far.wc.qp_num == 0);
    return told(&pair.far.wc);
}

/* Each operation of the program's own once, with no connection at all. */
static void operations(void)
{
    struct iw_atomic_op op = {.opcode = IW_WR_FETCH_ADD, .compare_add = 5};
    CHECK(own(&op, WORD) == 0 && own(&op, WORD) == 5);
    op = (struct iw_atomic_op){.opcode = IW_WR_CMP_SWAP, .compare_add = 10, .compare_add_mask = UINT64_MAX,
                               .swap = 77, .swap_mask = UINT64_MAX};
    CHECK(own(&op, WORD) == 10 && own(&op, WORD) == 77);
    op = (struct iw_atomic_op){.opcode = IW_WR_SWAP, .swap = 3};
    CHECK(own(&op, WORD) == 77 && word_at(pair.far.pool, WORD) == 3);
    /* Two fields of 32 bits: nothing is carried from the lower one. */
    op = (struct iw_atomic_op){.opcode = IW_WR_FETCH_ADD, .compare_add = UINT32_MAX, .compare_add_mask = 1ull << 31};
    CHECK(own(&op, WORD) == 3 && word_at(pair.far.pool, WORD) == 2);
    memset(pair.far.pool, 0, 4096);
}

static struct iw_send_wr remote(uint32_t opcode, uint64_t wr_id, const struct iw_sge *sink)
{
    struct iw_send_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.opcode = opcode;
    wr.flags = IW_SEND_SIGNALED;
    wr.wr_id = wr_id;
    wr.sges = sink;
    wr.sge_count = 1;
    wr.remote_stag = pair.far.info.stag;
    wr.remote_offset = pair.far.info.offset + WORD;
    wr.compare_add = 1;
    return wr;
}

/* Keeps BATCH additions of the near end's under way. */
struct near_adds {
    uint32_t posted, back;
};

static void add_remotely(struct near_adds *adds)
{
    struct iw_sge sink = piece(&pair.near, 0, 8);
    struct iw_send_wr wr = remote(IW_WR_FETCH_ADD, 1, &sink);
    struct iw_wc wcs[BATCH];
    while (adds->posted < REMOTE && adds->posted - adds->back < BATCH) {
        ANSWERS(IW_OK, iw_post_send(pair.near.ctx, pair.near.qp, &wr, 1, NULL));
        adds->posted += 1;
    }
    int32_t found = iw_cq_poll(pair.near.ctx, pair.near.cq, wcs, BATCH);
    CHECK(found >= 0);
    for (int32_t i = 0; i < found; i++) {
        CHECK(wcs[i].status == IW_WC_SUCCESS && wcs[i].opcode == IW_WC_ATOMIC && wcs[i].flags == 0);
    }
    adds->back += (uint32_t)found;
}

/* The far end's own additions, one at a time: by FetchAdd, then by CmpSwap until nobody has been in between. */
struct own_adds {
    uint32_t added, swapped;
    uint64_t guess;
    int under_way;
};

static void add_ourselves(struct own_adds *adds)
{
    int adding = adds->added == adds->swapped;
    struct iw_atomic_op op = {.opcode = IW_WR_FETCH_ADD, .compare_add = 1};
    if (!adding) {
        op = (struct iw_atomic_op){.opcode = IW_WR_CMP_SWAP, .compare_add = adds->guess,
                                   .compare_add_mask = UINT64_MAX, .swap = adds->guess + 1, .swap_mask = UINT64_MAX};
    }
    if (adds->under_way == 0 && adds->swapped < OWN) {
        ANSWERS(IW_OK, iw_atomic(pair.far.ctx, pair.far.cq, 2, pair.far.mr, WORD, &op));
        adds->under_way = 1;
    }
    if (iw_cq_poll(pair.far.ctx, pair.far.cq, &pair.far.wc, 1) != 1) {
        return;
    }
    CHECK(pair.far.wc.status == IW_WC_SUCCESS && pair.far.wc.flags == IW_WC_FLAG_LOCAL_ATOMIC && pair.far.wc.wr_id == 2);
    adds->under_way = 0;
    uint64_t before = told(&pair.far.wc);
    if (adding) {
        adds->added += 1;
        adds->guess = before + 1;
    } else if (before == adds->guess) {
        adds->swapped += 1;
    } else {
        adds->guess = before;
    }
}

static void together(void)
{
    struct near_adds near = {0};
    struct own_adds own = {0};
    uint64_t limit = iw_now_ns() + 60ull * SECOND_NS;
    while (near.back < REMOTE || own.swapped < OWN) {
        add_remotely(&near);
        add_ourselves(&own);
        turn(&pair);
        CHECK(iw_now_ns() < limit);
    }
    CHECK(near.posted == REMOTE && own.added == OWN);
    CHECK(word_at(pair.far.pool, WORD) == REMOTE + 2 * OWN);
}

/* A peer is asked whether it has atomic operations: one that has answers, one that has not ends the connection and is
 * remembered. */
static void probes(void)
{
    struct iw_addr at;
    struct iw_sge sink = piece(&pair.near, 0, 8);
    struct iw_send_wr probe = remote(IW_WR_PROBE_ATOMICS, 3, &sink);
    uint64_t before = word_at(pair.far.pool, WORD);
    ANSWERS(IW_OK, iw_addr_parse(FAR_ADDRESS, &at));
    ANSWERS(IW_OK, iw_post_send(pair.near.ctx, pair.near.qp, &probe, 1, NULL));
    await_completion(&pair, &pair.near, IW_WC_ATOMIC, 3);
    CHECK(pair.near.wc.status == IW_WC_SUCCESS && word_at(pair.near.pool, 0) == before);
    CHECK(word_at(pair.far.pool, WORD) == before);
    ANSWERS(0, iw_lacks_atomics(pair.near.ctx, &at));

    ANSWERS(IW_OK, iw_disconnect(pair.near.ctx, pair.near.qp));
    await_event(&pair, &pair.near, IW_EVENT_DISCONNECTED);
    await_event(&pair, &pair.far, IW_EVENT_DISCONNECTED);
    pair_join_again(&pair, IW_EXTENSIONS_RFC7306, IW_EXTENSIONS_OFF);
    ANSWERS(IW_OK, iw_post_send(pair.near.ctx, pair.near.qp, &probe, 1, NULL));
    await_event(&pair, &pair.near, IW_EVENT_PEER_LACKS_ATOMICS);
    CHECK(pair.near.event.qp.id == pair.near.qp.id);
    ANSWERS(1, iw_lacks_atomics(pair.near.ctx, &pair.near.event.remote));
    ANSWERS(1, iw_lacks_atomics(pair.near.ctx, &at));
    ANSWERS(0, iw_lacks_atomics(pair.far.ctx, &at));
}

/* Memory that is released before the owner has come to it. */
static void memory_that_goes(void)
{
    struct iw_mr *mr = NULL;
    void *address = NULL;
    struct iw_atomic_op op = {.opcode = IW_WR_FETCH_ADD, .compare_add = 1};
    ANSWERS(IW_OK, iw_mr_alloc(pair.near.ctx, pair.near.pd, 64, IW_ACCESS_LOCAL_WRITE, &address, &mr));
    while (iw_cq_poll(pair.near.ctx, pair.near.cq, &pair.near.wc, 1) > 0) {
    }
    ANSWERS(IW_OK, iw_atomic(pair.near.ctx, pair.near.cq, 4, mr, 8, &op));
    ANSWERS(IW_OK, iw_mr_deregister(mr));
    ANSWERS(IW_E_STATE, iw_atomic(pair.near.ctx, pair.near.cq, 5, mr, 8, &op));
    await_completion(&pair, &pair.near, IW_WC_ATOMIC, 4);
    CHECK(pair.near.wc.status == IW_WC_LOC_PROT_ERR);
    while (iw_mr_poll_deregistered(mr) == 0) {
        turn(&pair);
    }
}

/* Memory that is pinned to the second of two cores: it does the work, and no other. */
static void pinned(void)
{
    struct iw_stack *stack, *other;
    struct iw_worker *workers[2];
    struct iw_ctx *ctx;
    struct iw_pd pd;
    struct iw_cq cq;
    struct iw_mr *mr;
    struct iw_wc wc;
    static _Alignas(64) unsigned char words[256];
    struct iw_atomic_op op = {.opcode = IW_WR_FETCH_ADD, .compare_add = 9};
    uint32_t core = 99;
    ANSWERS(IW_OK, iw_stack_open_pair(NEAR_TOML "[core]\ncount = 2\n", FAR_TOML "[core]\ncount = 2\n", IW_PAIR_MEMORY,
                                      0, &stack, &other));
    ANSWERS(IW_OK, iw_worker_take(stack, 0, &workers[0]));
    ANSWERS(IW_OK, iw_worker_take(stack, 1, &workers[1]));
    ANSWERS(IW_OK, iw_ctx_open(stack, &ctx));
    ANSWERS(IW_OK, iw_pd_alloc(ctx, &pd));
    ANSWERS(IW_OK, iw_cq_create(ctx, 8, &cq));
    ANSWERS(IW_OK, iw_mr_register_on_core(ctx, pd, words, sizeof words, IW_ACCESS_LOCAL_WRITE, 1, &mr));
    for (size_t offset = 0; offset < sizeof words; offset += 64) {
        ANSWERS(IW_OK, iw_owner_core(ctx, mr, offset, &core));
        CHECK(core == 1);
    }
    ANSWERS(IW_OK, iw_atomic(ctx, cq, 6, mr, 64, &op));
    for (int i = 0; i < 10; i++) {
        CHECK(iw_worker_poll(workers[0], 4, NULL) >= 0);
    }
    ANSWERS(0, iw_cq_poll(ctx, cq, &wc, 1));
    for (int i = 0; i < 10; i++) {
        CHECK(iw_worker_poll(workers[1], 4, NULL) >= 0);
    }
    ANSWERS(1, iw_cq_poll(ctx, cq, &wc, 1));
    CHECK(wc.status == IW_WC_SUCCESS && told(&wc) == 0 && word_at(words, 64) == 9);
    ANSWERS(IW_OK, iw_mr_deregister(mr));
    ANSWERS(IW_OK, iw_ctx_close(ctx));
    ANSWERS(IW_OK, iw_worker_close(workers[0]));
    ANSWERS(IW_OK, iw_worker_close(workers[1]));
    ANSWERS(1, iw_mr_poll_deregistered(mr));
    ANSWERS(IW_OK, iw_stack_close(stack));
    ANSWERS(IW_OK, iw_stack_close(other));
}

int main(void)
{
    pair_open(&pair);
    operations();
    pair_connect(&pair, IW_EXTENSIONS_RFC7306);
    together();
    probes();
    memory_that_goes();
    pair_close(&pair);
    pinned();
    puts("every sum was exact");
    return 0;
}

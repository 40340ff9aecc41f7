/* Memory windows and fast regions: lent to a peer for one message or for a while, and what is left behind their end. */
#include "check.h"

static struct pair pair;

enum { PIECE = 4096 };

static struct iw_send_wr request(uint32_t opcode, uint64_t wr_id)
{
    struct iw_send_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.opcode = opcode;
    wr.wr_id = wr_id;
    return wr;
}

static struct iw_send_wr send_of(uint64_t wr_id, const void *bytes, uint32_t length)
{
    struct iw_send_wr wr = request(IW_WR_SEND, wr_id);
    wr.flags = IW_SEND_INLINE;
    wr.inline_data = bytes;
    wr.inline_bytes = length;
    return wr;
}

static struct iw_send_wr write_of(uint64_t wr_id, const char *text, uint32_t stag, uint64_t offset)
{
    struct iw_send_wr wr = send_of(wr_id, text, (uint32_t)strlen(text));
    wr.opcode = IW_WR_WRITE;
    wr.remote_stag = stag;
    wr.remote_offset = offset;
    return wr;
}

static void post(struct end *end, const struct iw_send_wr *wrs, uint32_t count)
{
    uint32_t posted = 0;
    ANSWERS(IW_OK, iw_post_send(end->ctx, end->qp, wrs, count, &posted));
    CHECK(posted == count);
}

static void post_recv(struct end *end, uint64_t wr_id)
{
    struct iw_sge sge = piece(end, POOL_BYTES - 64, 64);
    struct iw_recv_wr wr = {.wr_id = wr_id, .sges = &sge, .sge_count = 1};
    ANSWERS(IW_OK, iw_post_recv(end->ctx, end->qp, &wr, 1, NULL));
}

static void done(struct end *end, uint32_t opcode, uint64_t wr_id, uint32_t status)
{
    await_completion(&pair, end, opcode, wr_id);
    CHECK(end->wc.status == status);
}

/* The far end's Terminate names the error, and both ends hear of it. */
static void terminated(uint8_t layer, uint8_t etype, uint8_t code)
{
    await_event(&pair, &pair.far, IW_EVENT_TERMINATED);
    struct iw_terminate found = pair.far.event.terminate;
    CHECK(found.sent == 1 && found.layer == layer && found.etype == etype && found.code == code);
    await_event(&pair, &pair.near, IW_EVENT_TERMINATED);
    CHECK(pair.near.event.terminate.sent == 0 && pair.near.event.terminate.code == code);
    await_event(&pair, &pair.near, IW_EVENT_DISCONNECTED);
    await_event(&pair, &pair.far, IW_EVENT_DISCONNECTED);
}

/* A write to a tag that has ended: nothing is written, the connection ends (RFC 5041 s7.2). */
static void write_is_refused(uint32_t stag, size_t at)
{
    unsigned char before[16];
    struct iw_send_wr wr = write_of(900, "too late", stag, pair.far.info.offset + at);
    memcpy(before, pair.far.pool + at, sizeof before);
    post(&pair.near, &wr, 1);
    terminated(1, 1, 0);
    CHECK(memcmp(before, pair.far.pool + at, sizeof before) == 0);
}

/* Binds a window of the far end to a piece of its memory and tells the peer the tag, in one list. */
static uint32_t lend(struct iw_mw *mw, size_t at)
{
    struct iw_stag_info before = {.size = sizeof before}, after = {.size = sizeof after};
    struct iw_sge over = piece(&pair.far, at, PIECE);
    struct iw_send_wr chain[2];
    uint32_t told;
    ANSWERS(IW_OK, iw_mw_query(mw, &before));
    chain[0] = request(IW_WR_BIND, 10);
    chain[0].flags = IW_SEND_SIGNALED;
    chain[0].sges = &over;
    chain[0].sge_count = 1;
    chain[0].window = mw;
    chain[0].access = IW_ACCESS_REMOTE_WRITE;
    chain[1] = send_of(11, &before.next_stag, sizeof before.next_stag);
    post_recv(&pair.near, 20);
    post(&pair.far, chain, 2);
    ANSWERS(IW_OK, iw_mw_query(mw, &after));
    CHECK(after.stag == before.next_stag && after.next_stag != after.stag && after.stag != before.stag);
    done(&pair.far, IW_WC_BIND, 10, IW_WC_SUCCESS);
    done(&pair.near, IW_WC_RECV, 20, IW_WC_SUCCESS);
    memcpy(&told, pair.near.pool + POOL_BYTES - 64, sizeof told);
    CHECK(told == after.stag);
    return told;
}

/* A storage target's round: the peer writes by the window's tag and ends it by its Send (RFC 5040 s5.3). */
static void round_of(struct iw_mw *mw, size_t at)
{
    uint32_t stag = lend(mw, at);
    struct iw_send_wr chain[2] = {write_of(1, "by the window", stag, pair.far.info.offset + at),
                                  send_of(2, "done", 4)};
    chain[1].flags |= IW_SEND_INVALIDATE;
    chain[1].invalidate_stag = stag;
    post_recv(&pair.far, 21);
    post(&pair.near, chain, 2);
    done(&pair.far, IW_WC_RECV, 21, IW_WC_SUCCESS);
    CHECK(pair.far.wc.flags == IW_WC_FLAG_INVALIDATED && pair.far.wc.invalidated_stag == stag);
    CHECK(memcmp(pair.far.pool + at, "by the window", 13) == 0);
}

static void join_again(void)
{
    pair_join_again(&pair, IW_EXTENSIONS_OFF, IW_EXTENSIONS_OFF);
}

static void windows(void)
{
    struct iw_mw *mw = NULL;
    struct iw_stag_info info = {.size = sizeof info};
    ANSWERS(IW_OK, iw_mw_create(pair.far.ctx, pair.far.pd, &mw));
    ANSWERS(IW_OK, iw_mw_query(mw, &info));
    CHECK(info.stag == 0 && info.next_stag != 0);
    for (size_t i = 0; i < 4; i++) {
        round_of(mw, i * PIECE);
    }
    /* Ended by the peer, and written to again. */
    ANSWERS(IW_OK, iw_mw_query(mw, &info));
    write_is_refused(info.stag, 3 * PIECE);

    /* Ended by a request of its owner's. */
    join_again();
    uint32_t stag = lend(mw, 0);
    struct iw_send_wr end = request(IW_WR_INVALIDATE, 12);
    end.flags = IW_SEND_SIGNALED;
    end.invalidate_stag = stag;
    post(&pair.far, &end, 1);
    done(&pair.far, IW_WC_INVALIDATE, 12, IW_WC_SUCCESS);
    write_is_refused(stag, 0);

    /* Ended without a request, when its queue pair has gone, and lent to the next one. */
    join_again();
    stag = lend(mw, 0);
    ANSWERS(IW_OK, iw_disconnect(pair.near.ctx, pair.near.qp));
    await_event(&pair, &pair.far, IW_EVENT_DISCONNECTED);
    join_again();
    while (iw_mw_invalidate(mw) == 0) {
        turn(&pair);
    }
    ANSWERS(1, iw_mw_invalidate(mw));
    round_of(mw, 0);

    /* Ended. */
    stag = lend(mw, PIECE);
    ANSWERS(IW_OK, iw_mw_destroy(mw));
    ANSWERS(IW_E_HANDLE, iw_mw_destroy(mw));
    write_is_refused(stag, PIECE);
    join_again();
}

/* What is bound to memory ends with it at once; the window is as good as before (RFC 5040 s8.1.1). */
static void a_window_whose_memory_goes(void)
{
    struct iw_mw *mw = NULL;
    struct iw_mr *mr = NULL;
    struct iw_mr_info info = {.size = sizeof info};
    struct iw_stag_info tags = {.size = sizeof tags}, after = {.size = sizeof after};
    void *address = NULL;
    struct iw_send_wr bind = request(IW_WR_BIND, 30);
    uint32_t access = IW_ACCESS_LOCAL_WRITE | IW_ACCESS_BIND;
    ANSWERS(IW_OK, iw_mw_create(pair.far.ctx, pair.far.pd, &mw));
    ANSWERS(IW_OK, iw_mr_alloc(pair.far.ctx, pair.far.pd, PIECE, access, &address, &mr));
    ANSWERS(IW_OK, iw_mr_query(mr, &info));
    CHECK(info.access == access);
    struct iw_sge over = {info.offset, PIECE, info.stag};
    bind.flags = IW_SEND_SIGNALED;
    bind.sges = &over;
    bind.sge_count = 1;
    bind.window = mw;
    bind.access = IW_ACCESS_REMOTE_WRITE;
    post(&pair.far, &bind, 1);
    done(&pair.far, IW_WC_BIND, 30, IW_WC_SUCCESS);
    ANSWERS(IW_OK, iw_mw_query(mw, &tags));
    ANSWERS(IW_OK, iw_mr_deregister(mr));
    struct iw_send_wr late = write_of(3, "too late", tags.stag, info.offset);
    post(&pair.near, &late, 1);
    terminated(1, 1, 0);
    while (iw_mr_poll_deregistered(mr) == 0) {
        turn(&pair);
    }

    /* Memory that is not there any more cannot be bound: the owner's own error. */
    join_again();
    CHECK(iw_mw_invalidate(mw) >= 0);
    post(&pair.far, &bind, 1);
    done(&pair.far, IW_WC_BIND, 30, IW_WC_MW_BIND_ERR);
    await_event(&pair, &pair.far, IW_EVENT_QP_FATAL);
    await_event(&pair, &pair.near, IW_EVENT_DISCONNECTED);
    join_again();

    /* A request that is refused uses up no tag. */
    ANSWERS(IW_OK, iw_mw_query(mw, &tags));
    bind.access = 1 << 20;
    ANSWERS(IW_E_VALUE, iw_post_send(pair.far.ctx, pair.far.qp, &bind, 1, NULL));
    ANSWERS(IW_OK, iw_mw_query(mw, &after));
    CHECK(after.stag == tags.stag && after.next_stag == tags.next_stag);
    round_of(mw, 0);
    ANSWERS(IW_OK, iw_mw_destroy(mw));
}

/* One that is bound already: each of the two has a tag, and the second is its owner's own error. */
static void a_window_bound_twice(void)
{
    struct iw_mw *mw = NULL;
    struct iw_stag_info tags = {.size = sizeof tags};
    struct iw_sge over = piece(&pair.far, 0, PIECE);
    struct iw_send_wr wrs[2];
    ANSWERS(IW_OK, iw_mw_create(pair.far.ctx, pair.far.pd, &mw));
    for (int i = 0; i < 2; i++) {
        wrs[i] = request(IW_WR_BIND, 31 + (uint64_t)i);
        wrs[i].flags = IW_SEND_SIGNALED;
        wrs[i].sges = &over;
        wrs[i].sge_count = 1;
        wrs[i].window = mw;
        wrs[i].access = IW_ACCESS_REMOTE_READ;
    }
    ANSWERS(IW_OK, iw_mw_query(mw, &tags));
    uint32_t first = tags.next_stag;
    post(&pair.far, wrs, 2);
    done(&pair.far, IW_WC_BIND, 31, IW_WC_SUCCESS);
    done(&pair.far, IW_WC_BIND, 32, IW_WC_MW_BIND_ERR);
    ANSWERS(IW_OK, iw_mw_query(mw, &tags));
    CHECK(tags.stag != first && tags.next_stag != first && tags.next_stag != tags.stag);
    await_event(&pair, &pair.far, IW_EVENT_QP_FATAL);
    await_event(&pair, &pair.near, IW_EVENT_DISCONNECTED);
    ANSWERS(IW_OK, iw_mw_destroy(mw));
    join_again();
}

static struct iw_send_wr registering(struct iw_fast_mr *fast_mr, const struct iw_sge *over, uint32_t access)
{
    struct iw_send_wr wr = request(IW_WR_FAST_REGISTER, 40);
    wr.sges = over;
    wr.sge_count = 1;
    wr.fast_mr = fast_mr;
    wr.access = access;
    return wr;
}

/* An initiator's round: registered, read into and ended in one list. */
static void fast_read(struct iw_fast_mr *fast_mr, size_t at)
{
    struct iw_stag_info tags = {.size = sizeof tags};
    struct iw_sge over = piece(&pair.near, at, PIECE);
    struct iw_sge sink = over;
    struct iw_send_wr chain[2];
    ANSWERS(IW_OK, iw_fast_mr_query(fast_mr, &tags));
    sink.lkey = tags.next_stag;
    chain[0] = registering(fast_mr, &over, IW_ACCESS_LOCAL_WRITE);
    chain[1] = request(IW_WR_READ, 41);
    chain[1].flags = IW_SEND_SIGNALED | IW_SEND_INVALIDATE;
    chain[1].sges = &sink;
    chain[1].sge_count = 1;
    chain[1].remote_stag = pair.far.info.stag;
    chain[1].remote_offset = pair.far.info.offset + 8 * PIECE;
    memset(pair.far.pool + 8 * PIECE, (int)(at / PIECE) + 1, PIECE);
    post(&pair.near, chain, 2);
    done(&pair.near, IW_WC_READ, 41, IW_WC_SUCCESS);
    CHECK(memcmp(pair.near.pool + at, pair.far.pool + 8 * PIECE, PIECE) == 0);
}

/* A registration at the far end that its peer writes by and ends, as `flags` let it. */
static uint32_t fast_lend(struct iw_fast_mr *fast_mr, uint32_t flags)
{
    struct iw_stag_info tags = {.size = sizeof tags};
    struct iw_sge over = piece(&pair.far, 5 * PIECE, PIECE);
    struct iw_send_wr wr = registering(fast_mr, &over, IW_ACCESS_LOCAL_WRITE | IW_ACCESS_REMOTE_WRITE);
    wr.flags = IW_SEND_SIGNALED | flags;
    post(&pair.far, &wr, 1);
    done(&pair.far, IW_WC_FAST_REGISTER, 40, IW_WC_SUCCESS);
    ANSWERS(IW_OK, iw_fast_mr_query(fast_mr, &tags));
    struct iw_send_wr chain[2] = {write_of(4, "fast", tags.stag, over.addr), send_of(5, "end", 3)};
    chain[1].flags |= IW_SEND_INVALIDATE;
    chain[1].invalidate_stag = tags.stag;
    post_recv(&pair.far, 42);
    post(&pair.near, chain, 2);
    return tags.stag;
}

static void fast_regions(void)
{
    struct iw_fast_mr *near = NULL, *far = NULL;
    ANSWERS(IW_OK, iw_fast_mr_create(pair.near.ctx, pair.near.pd, &near));
    ANSWERS(IW_OK, iw_fast_mr_create(pair.far.ctx, pair.far.pd, &far));
    for (size_t i = 0; i < 4; i++) {
        fast_read(near, i * PIECE);
    }
    uint32_t stag = fast_lend(far, IW_SEND_STREAM_SCOPED);
    done(&pair.far, IW_WC_RECV, 42, IW_WC_SUCCESS);
    CHECK(pair.far.wc.invalidated_stag == stag && memcmp(pair.far.pool + 5 * PIECE, "fast", 4) == 0);
    write_is_refused(stag, 5 * PIECE);
    /* RFC 5040 s8.1.1 (7): what other streams may share is not a peer's to end. */
    join_again();
    stag = fast_lend(far, 0);
    terminated(0, 1, 9);
    join_again();
    while (iw_fast_mr_invalidate(far) == 0) {
        turn(&pair);
    }
    write_is_refused(stag, 5 * PIECE);
    join_again();
    ANSWERS(IW_OK, iw_fast_mr_destroy(near));
    ANSWERS(IW_OK, iw_fast_mr_destroy(far));
    ANSWERS(IW_E_HANDLE, iw_fast_mr_invalidate(far));
}

/* A window outlives its context and its stack. */
static void a_window_that_is_left(struct iw_mw *mw)
{
    struct iw_stag_info info = {.size = sizeof info};
    ANSWERS(IW_OK, iw_mw_query(mw, &info));
    ANSWERS(1, iw_mw_invalidate(mw));
    ANSWERS(IW_OK, iw_mw_destroy(mw));
}

int main(void)
{
    struct iw_mw *left = NULL;
    pair_open(&pair);
    pair_connect(&pair, IW_EXTENSIONS_OFF);
    windows();
    a_window_whose_memory_goes();
    a_window_bound_twice();
    fast_regions();
    ANSWERS(IW_OK, iw_mw_create(pair.near.ctx, pair.near.pd, &left));
    pair_close(&pair);
    a_window_that_is_left(left);
    puts("everything that was lent came back");
    return 0;
}

/* What a program may do wrong with windows, fast regions and words: each gets an error number, the connection stays, and
 * everything still works afterwards. */
#define _DEFAULT_SOURCE
#include <sys/mman.h>

#include "check.h"

static struct pair pair;

static void nulls(void)
{
    struct iw_ctx *ctx = pair.near.ctx;
    struct iw_mw *mw = (struct iw_mw *)&pair;
    struct iw_fast_mr *fast_mr = (struct iw_fast_mr *)&pair;
    struct iw_mr *mr = NULL;
    struct iw_stag_info info = {.size = sizeof info};
    struct iw_atomic_op op = {.opcode = IW_WR_FETCH_ADD};
    uint32_t core;
    ANSWERS(IW_E_POINTER, iw_mw_create(NULL, pair.near.pd, &mw));
    CHECK(mw == NULL);
    ANSWERS(IW_E_POINTER, iw_mw_create(ctx, pair.near.pd, NULL));
    ANSWERS(IW_E_POINTER, iw_mw_query(NULL, &info));
    ANSWERS(IW_E_POINTER, iw_mw_invalidate(NULL));
    ANSWERS(IW_E_POINTER, iw_mw_destroy(NULL));
    ANSWERS(IW_E_POINTER, iw_fast_mr_create(NULL, pair.near.pd, &fast_mr));
    CHECK(fast_mr == NULL);
    ANSWERS(IW_E_POINTER, iw_fast_mr_create(ctx, pair.near.pd, NULL));
    ANSWERS(IW_E_POINTER, iw_fast_mr_query(NULL, &info));
    ANSWERS(IW_E_POINTER, iw_fast_mr_invalidate(NULL));
    ANSWERS(IW_E_POINTER, iw_fast_mr_destroy(NULL));
    ANSWERS(IW_E_POINTER, iw_atomic(NULL, pair.near.cq, 1, pair.near.mr, 0, &op));
    ANSWERS(IW_E_POINTER, iw_mr_register_on_core(ctx, pair.near.pd, NULL, 100, 0, 0, &mr));
    ANSWERS(IW_E_POINTER, iw_mr_register_on_core(ctx, pair.near.pd, &pair, 100, 0, 0, NULL));
    ANSWERS(IW_E_POINTER, iw_atomic(ctx, pair.near.cq, 1, NULL, 0, &op));
    ANSWERS(IW_E_POINTER, iw_atomic(ctx, pair.near.cq, 1, pair.near.mr, 0, NULL));
    ANSWERS(IW_E_POINTER, iw_owner_core(NULL, pair.near.mr, 0, &core));
    ANSWERS(IW_E_POINTER, iw_owner_core(ctx, NULL, 0, &core));
    ANSWERS(IW_E_POINTER, iw_owner_core(ctx, pair.near.mr, 0, NULL));
}

/* Handles of another kind, and objects of another stack. */
static void foreign(void)
{
    struct iw_ctx *ctx = pair.near.ctx;
    void *worker = pair.near.worker, *mr = pair.near.mr;
    struct iw_pd no_pd = {1};
    struct iw_mr *pinned;
    struct iw_mw *mw;
    struct iw_fast_mr *fast_mr;
    struct iw_atomic_op op = {.opcode = IW_WR_SWAP};
    uint32_t core;
    ANSWERS(IW_E_HANDLE, iw_mw_invalidate(mr));
    ANSWERS(IW_E_HANDLE, iw_fast_mr_destroy(mr));
    ANSWERS(IW_E_HANDLE, iw_owner_core(ctx, worker, 0, &core));
    ANSWERS(IW_E_NO_PD, iw_mr_register_on_core(ctx, pair.far.pd, pair.near.pool, 8, 0, 0, &pinned));
    ANSWERS(IW_E_NO_PD, iw_mw_create(ctx, pair.far.pd, &mw));
    ANSWERS(IW_E_NO_PD, iw_fast_mr_create(ctx, no_pd, &fast_mr));
    ANSWERS(IW_E_NO_CQ, iw_atomic(ctx, pair.far.cq, 1, pair.near.mr, 0, &op));
    ANSWERS(IW_E_MEMORY, iw_atomic(ctx, pair.near.cq, 1, pair.far.mr, 0, &op));
    ANSWERS(IW_E_MEMORY, iw_owner_core(ctx, pair.far.mr, 0, &core));
}

/* Words that no atomic operation can be run on, and memory that cannot be pinned so. */
static void words(void)
{
    struct iw_ctx *ctx = pair.near.ctx;
    struct iw_cq cq = pair.near.cq, small;
    struct iw_atomic_op op = {.opcode = IW_WR_WRITE};
    struct iw_mr *mr = NULL;
    uint32_t core;
    ANSWERS(IW_E_VALUE, iw_atomic(ctx, cq, 1, pair.near.mr, 0, &op));
    op.opcode = IW_WR_FETCH_ADD;
    ANSWERS(IW_E_MEMORY, iw_atomic(ctx, cq, 1, pair.near.mr, 4, &op));
    ANSWERS(IW_E_MEMORY, iw_atomic(ctx, cq, 1, pair.near.mr, POOL_BYTES, &op));
    ANSWERS(IW_E_MEMORY, iw_atomic(ctx, cq, 1, pair.near.mr, SIZE_MAX - 7, &op));
    ANSWERS(IW_E_MEMORY, iw_owner_core(ctx, pair.near.mr, POOL_BYTES - 4, &core));
    ANSWERS(IW_OK, iw_cq_create(ctx, 1, &small));
    ANSWERS(IW_OK, iw_atomic(ctx, small, 1, pair.near.mr, 0, &op));
    ANSWERS(IW_E_CQ_FULL, iw_atomic(ctx, small, 2, pair.near.mr, 0, &op));
    ANSWERS(IW_OK, iw_mr_register(ctx, pair.near.pd, pair.near.pool, 64, 0, &mr));
    ANSWERS(IW_E_MEMORY, iw_atomic(ctx, cq, 1, mr, 0, &op));
    ANSWERS(IW_OK, iw_mr_deregister(mr));
    ANSWERS(IW_E_STATE, iw_atomic(ctx, cq, 1, mr, 0, &op));
    ANSWERS(IW_E_STATE, iw_owner_core(ctx, mr, 0, &core));
    while (iw_mr_poll_deregistered(mr) == 0) {
        turn(&pair);
    }
    ANSWERS(IW_E_HANDLE, iw_atomic(ctx, cq, 1, mr, 0, &op));
    for (core = 1; core <= 65536; core <<= 8) {
        ANSWERS(IW_E_VALUE, iw_mr_register_on_core(ctx, pair.near.pd, pair.near.pool, 64, 0, core, &mr));
    }
    /* Memory that may not be written, and memory that is not there. */
    char *pages = mmap(NULL, 8192, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(pages != MAP_FAILED && munmap(pages + 4096, 4096) == 0);
    ANSWERS(IW_E_MEMORY, iw_mr_register(ctx, pair.near.pd, pages, 4096, IW_ACCESS_LOCAL_WRITE, &mr));
    ANSWERS(IW_E_MEMORY, iw_mr_register_for_qp(ctx, pair.near.qp, pages, 4096, IW_ACCESS_LOCAL_WRITE, &mr));
    ANSWERS(IW_E_MEMORY, iw_mr_register(ctx, pair.near.pd, pages, 4097, IW_ACCESS_REMOTE_READ, &mr));
    ANSWERS(IW_E_MEMORY, iw_mr_register(ctx, pair.near.pd, pages + 4096, 1, 0, &mr));
    CHECK(mr == NULL && munmap(pages, 4096) == 0);
    /* The same bytes are registered already, and are no core's own. */
    ANSWERS(IW_E_MEMORY, iw_mr_register_on_core(ctx, pair.near.pd, pair.near.pool, 64, 0, 0, &mr));
    CHECK(mr == NULL);
}

/* Bindings that are refused when they are posted: the connection stays, and no tag is used up. */
static void bindings(void)
{
    struct iw_ctx *ctx = pair.near.ctx;
    struct iw_qp qp = pair.near.qp;
    struct iw_sge over[2] = {piece(&pair.near, 0, 64), piece(&pair.near, 64, 64)};
    struct iw_stag_info before = {.size = sizeof before}, after = {.size = sizeof after};
    struct iw_mw *mw = NULL, *foreign = NULL;
    struct iw_fast_mr *fast_mr = NULL;
    struct iw_pd other;
    struct iw_send_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.opcode = IW_WR_BIND;
    wr.sges = over;
    wr.sge_count = 1;
    wr.access = IW_ACCESS_REMOTE_READ;
    ANSWERS(IW_E_POINTER, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.opcode = IW_WR_FAST_REGISTER;
    ANSWERS(IW_E_POINTER, iw_post_send(ctx, qp, &wr, 1, NULL));
    ANSWERS(IW_OK, iw_mw_create(ctx, pair.near.pd, &mw));
    ANSWERS(IW_OK, iw_fast_mr_create(ctx, pair.near.pd, &fast_mr));
    wr.fast_mr = (struct iw_fast_mr *)(void *)mw;
    ANSWERS(IW_E_HANDLE, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.opcode = IW_WR_BIND;
    wr.window = (struct iw_mw *)(void *)fast_mr;
    ANSWERS(IW_E_HANDLE, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.window = mw;
    ANSWERS(IW_OK, iw_mw_query(mw, &before));
    ANSWERS(IW_E_NO_QP, iw_post_send(ctx, pair.far.qp, &wr, 1, NULL));
    wr.access = 32;
    ANSWERS(IW_E_VALUE, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.access = IW_ACCESS_REMOTE_READ;
    wr.flags = 128;
    ANSWERS(IW_E_VALUE, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.flags = 0;
    wr.sge_count = 0;
    ANSWERS(IW_E_VALUE, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.sge_count = 2;
    ANSWERS(IW_E_VALUE, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.sge_count = 1;
    wr.sges = NULL;
    ANSWERS(IW_E_POINTER, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.sges = over;
    ANSWERS(IW_OK, iw_mw_query(mw, &after));
    CHECK(after.stag == before.stag && after.next_stag == before.next_stag);
    /* Of another protection domain, and of another stack. */
    ANSWERS(IW_OK, iw_pd_alloc(ctx, &other));
    ANSWERS(IW_OK, iw_mw_create(ctx, other, &foreign));
    wr.window = foreign;
    ANSWERS(IW_E_VALUE, iw_post_send(ctx, qp, &wr, 1, NULL));
    ANSWERS(IW_OK, iw_mw_destroy(foreign));
    ANSWERS(IW_OK, iw_mw_create(pair.far.ctx, pair.far.pd, &foreign));
    wr.window = foreign;
    ANSWERS(IW_E_VALUE, iw_post_send(ctx, qp, &wr, 1, NULL));
    ANSWERS(IW_OK, iw_mw_destroy(foreign));
    ANSWERS(IW_E_HANDLE, iw_mw_query(foreign, &after));
    /* In the middle of a list: what is before it is posted, it and the rest are not. */
    struct iw_send_wr wrs[3];
    uint32_t posted = 99;
    memset(wrs, 0, sizeof wrs);
    wrs[0].opcode = wrs[2].opcode = IW_WR_WRITE;
    wrs[1] = wr;
    ANSWERS(IW_E_HANDLE, iw_post_send(ctx, qp, wrs, 3, &posted));
    CHECK(posted == 1);
    struct iw_qp_info info = {.size = sizeof info, .sends_outstanding = 1};
    while (info.sends_outstanding > 0) {
        turn(&pair);
        ANSWERS(IW_OK, iw_qp_query(ctx, qp, &info));
    }
    /* More windows than the context may have. */
    static struct iw_mw *many[5000];
    int32_t count = 0, answer;
    while ((answer = iw_mw_create(ctx, pair.near.pd, &many[count])) == IW_OK) {
        count += 1;
        CHECK(count < 5000);
    }
    ANSWERS(IW_E_LIMIT, answer);
    CHECK(many[count] == NULL);
    while (count > 0) {
        count -= 1;
        ANSWERS(IW_OK, iw_mw_destroy(many[count]));
    }
    ANSWERS(IW_OK, iw_fast_mr_destroy(fast_mr));
    ANSWERS(IW_OK, iw_mw_destroy(mw));
}

int main(void)
{
    pair_open(&pair);
    nulls();
    foreign();
    words();
    pair_connect(&pair, IW_EXTENSIONS_OFF);
    bindings();
    pair_close(&pair);
    puts("every misuse of memory got its number");
    return 0;
}

/* What a program may do wrong: each gets an error number, and everything still works afterwards. */
#include "check.h"

static struct pair pair;

static void nulls(void)
{
    struct iw_pd pd = {0};
    struct iw_cq cq = {0};
    struct iw_qp qp = {0};
    struct iw_srq srq = {0};
    struct iw_stack *stack = (struct iw_stack *)&pair;
    struct iw_mr *mr = NULL;
    void *address = NULL;
    struct iw_ctx *ctx = pair.near.ctx;

    ANSWERS(IW_E_POINTER, iw_stack_open(NULL, 0, &stack));
    CHECK(stack == NULL);
    ANSWERS(IW_E_POINTER, iw_stack_open(NEAR_TOML, 0, NULL));
    ANSWERS(IW_E_POINTER, iw_stack_open_file(NULL, 0, &stack));
    ANSWERS(IW_E_POINTER, iw_stack_open_pair(NULL, FAR_TOML, IW_PAIR_MEMORY, 0, &stack, &stack));
    ANSWERS(IW_E_POINTER, iw_stack_close(NULL));
    ANSWERS(IW_E_POINTER, iw_stack_cores(NULL));
    ANSWERS(IW_E_POINTER, iw_stack_counter(pair.near.stack, NULL, NULL));
    ANSWERS(IW_E_POINTER, iw_stack_counter_at(pair.near.stack, 0, NULL, 0, NULL));
    ANSWERS(IW_E_POINTER, iw_worker_take(NULL, 0, NULL));
    ANSWERS(IW_E_POINTER, iw_worker_poll(NULL, 1, NULL));
    ANSWERS(IW_E_POINTER, iw_worker_start(NULL, -1));
    ANSWERS(IW_E_POINTER, iw_worker_stop(NULL));
    ANSWERS(IW_E_POINTER, iw_worker_close(NULL));
    ANSWERS(IW_E_POINTER, iw_worker_link_up(NULL));
    ANSWERS(IW_E_POINTER, iw_ctx_open(NULL, &ctx));
    ctx = pair.near.ctx;
    ANSWERS(IW_E_POINTER, iw_ctx_open(pair.near.stack, NULL));
    ANSWERS(IW_E_POINTER, iw_ctx_close(NULL));
    ANSWERS(IW_E_POINTER, iw_pd_alloc(NULL, &pd));
    ANSWERS(IW_E_POINTER, iw_pd_alloc(ctx, NULL));
    ANSWERS(IW_E_POINTER, iw_limits_query(ctx, NULL));
    ANSWERS(IW_E_POINTER, iw_drain(NULL, 0, NULL));
    ANSWERS(IW_E_POINTER, iw_cq_create(NULL, 4, &cq));
    ANSWERS(IW_E_POINTER, iw_cq_create(ctx, 4, NULL));
    ANSWERS(IW_E_POINTER, iw_cq_resize(NULL, cq, 4));
    ANSWERS(IW_E_POINTER, iw_cq_poll(ctx, pair.near.cq, NULL, 1));
    ANSWERS(IW_E_POINTER, iw_cq_arm(NULL, cq, 0));
    ANSWERS(IW_E_POINTER, iw_cq_fd(ctx, pair.near.cq, NULL));
    ANSWERS(IW_E_POINTER, iw_cq_destroy(NULL, cq));
    ANSWERS(IW_E_POINTER, iw_srq_create(ctx, pd, 4, 1, NULL));
    ANSWERS(IW_E_POINTER, iw_srq_arm(NULL, srq, 1));
    ANSWERS(IW_E_POINTER, iw_srq_destroy(NULL, srq));
    ANSWERS(IW_E_POINTER, iw_srq_post_recv(ctx, srq, NULL, 1, NULL));
    ANSWERS(IW_E_POINTER, iw_qp_attr_init(NULL, cq));
    ANSWERS(IW_E_POINTER, iw_qp_create(ctx, pair.near.pd, NULL, &qp));
    ANSWERS(IW_E_POINTER, iw_qp_query(ctx, pair.near.qp, NULL));
    ANSWERS(IW_E_POINTER, iw_qp_destroy(NULL, qp));
    ANSWERS(IW_E_POINTER, iw_mr_register(ctx, pair.near.pd, NULL, 100, IW_ACCESS_LOCAL_WRITE, &mr));
    ANSWERS(IW_E_POINTER, iw_mr_register_for_qp(ctx, pair.near.qp, NULL, 100, 0, &mr));
    ANSWERS(IW_E_POINTER, iw_mr_alloc(ctx, pair.near.pd, 100, 0, NULL, &mr));
    ANSWERS(IW_E_POINTER, iw_mr_alloc(ctx, pair.near.pd, 100, 0, &address, NULL));
    ANSWERS(IW_E_POINTER, iw_mr_query(NULL, NULL));
    ANSWERS(IW_E_POINTER, iw_mr_deregister(NULL));
    ANSWERS(IW_E_POINTER, iw_mr_poll_deregistered(NULL));
    ANSWERS(IW_E_POINTER, iw_cq_query(ctx, pair.near.cq, NULL));
    ANSWERS(IW_E_POINTER, iw_srq_query(NULL, srq, NULL));
    ANSWERS(IW_E_POINTER, iw_lacks_atomics(ctx, NULL));
    ANSWERS(IW_E_POINTER, iw_lacks_atomics(NULL, NULL));
    ANSWERS(IW_E_POINTER, iw_listen(ctx, NULL));
    ANSWERS(IW_E_POINTER, iw_unlisten(ctx, NULL));
    ANSWERS(IW_E_POINTER, iw_connect(ctx, pair.near.qp, NULL, NULL));
    ANSWERS(IW_E_POINTER, iw_accept(ctx, NULL, pair.near.qp, NULL));
    ANSWERS(IW_E_POINTER, iw_reject(ctx, NULL, NULL, 0));
    ANSWERS(IW_E_POINTER, iw_disconnect(NULL, qp));
    ANSWERS(IW_E_POINTER, iw_abort(NULL, qp));
    ANSWERS(IW_E_POINTER, iw_request_core(NULL));
    ANSWERS(IW_E_POINTER, iw_event_arm(NULL));
    ANSWERS(IW_E_POINTER, iw_event_fd(pair.near.ctx, NULL));
    ANSWERS(IW_E_POINTER, iw_event_poll(ctx, NULL));
    ANSWERS(IW_E_POINTER, iw_post_send(ctx, pair.near.qp, NULL, 1, NULL));
    ANSWERS(IW_E_POINTER, iw_post_recv(ctx, pair.near.qp, NULL, 1, NULL));
    ANSWERS(IW_E_POINTER, iw_addr_parse(NULL, NULL));
    ANSWERS(IW_E_POINTER, iw_addr_text(NULL, NULL, 0));
    ANSWERS(IW_E_POINTER, iw_conn_params_init(NULL));
}

/* A handle of another kind is detected at run time, even after a cast. */
static void foreign_handles(void)
{
    void *worker = pair.near.worker, *ctx = pair.near.ctx, *mr = pair.near.mr, *stack = pair.near.stack;
    ANSWERS(IW_E_HANDLE, iw_worker_poll(ctx, 1, NULL));
    ANSWERS(IW_E_HANDLE, iw_ctx_close(worker));
    ANSWERS(IW_E_HANDLE, iw_stack_close(mr));
    ANSWERS(IW_E_HANDLE, iw_mr_deregister(stack));
    ANSWERS(IW_E_POINTER, iw_worker_poll((struct iw_worker *)((char *)worker + 1), 1, NULL));
}

/* Numbers that name nothing, or what another context or stack has. */
static void foreign_objects(void)
{
    struct iw_ctx *ctx = pair.near.ctx;
    struct iw_qp none = {0}, any = {0x0123456789abcdef};
    struct iw_cq no_cq = {UINT64_MAX};
    struct iw_srq no_srq = {77};
    struct iw_pd no_pd = {1};
    struct iw_request nobody = {{UINT64_MAX, UINT64_MAX}};
    struct iw_qp_attr attr;
    struct iw_qp qp;
    struct iw_srq srq;
    struct iw_mr *mr;
    struct iw_wc wc;
    struct iw_cq_info cq = {.size = sizeof cq};
    struct iw_srq_info shared = {.size = sizeof shared};
    ANSWERS(IW_E_NO_QP, iw_qp_destroy(ctx, none));
    ANSWERS(IW_E_NO_QP, iw_disconnect(ctx, any));
    ANSWERS(IW_E_NO_QP, iw_abort(ctx, any));
    ANSWERS(IW_E_NO_QP, iw_post_send(ctx, pair.far.qp, NULL, 0, NULL));
    ANSWERS(IW_E_NO_CQ, iw_cq_poll(ctx, no_cq, &wc, 1));
    ANSWERS(IW_E_NO_CQ, iw_cq_poll(ctx, pair.far.cq, &wc, 1));
    ANSWERS(IW_E_NO_SRQ, iw_srq_destroy(ctx, no_srq));
    ANSWERS(IW_E_NO_PD, iw_srq_create(ctx, no_pd, 4, 1, &srq));
    ANSWERS(IW_E_NO_PD, iw_mr_register(ctx, pair.far.pd, pair.near.pool, 8, 0, &mr));
    ANSWERS(IW_E_NO_CQ, iw_cq_query(ctx, pair.far.cq, &cq));
    ANSWERS(IW_E_NO_SRQ, iw_srq_query(ctx, no_srq, &shared));
    ANSWERS(IW_OK, iw_qp_attr_init(&attr, no_cq));
    ANSWERS(IW_E_NO_CQ, iw_qp_create(ctx, pair.near.pd, &attr, &qp));
    CHECK(iw_accept(ctx, &nobody, pair.near.qp, NULL) < 0);
    CHECK(iw_reject(ctx, &nobody, NULL, 0) < 0);
}

static void values(void)
{
    struct iw_ctx *ctx = pair.near.ctx;
    struct iw_stack *stack = NULL, *other = NULL;
    struct iw_worker *worker = NULL;
    struct iw_qp_attr attr;
    struct iw_qp qp;
    struct iw_cq cq;
    struct iw_mr *mr;
    struct iw_addr at;
    struct iw_conn_params params;
    unsigned char data[600] = {0};
    ANSWERS(IW_E_CONFIG, iw_stack_open("[port]\nring_size = 3\n", 0, &stack));
    ANSWERS(IW_E_CONFIG, iw_stack_open_file("/no/such/file.toml", 0, &stack));
    CHECK(strstr(iw_last_error(), "/no/such/file.toml") != NULL);
    ANSWERS(IW_E_VALUE, iw_stack_open("\xff\xfe", 0, &stack));
    ANSWERS(IW_E_VALUE, iw_stack_open(NEAR_TOML, 8, &stack));
    ANSWERS(IW_E_DEVICE, iw_stack_open(NEAR_TOML, 0, &stack));
    ANSWERS(IW_E_VALUE, iw_stack_open_pair(NEAR_TOML, FAR_TOML, 9, 0, &stack, &other));
    ANSWERS(IW_E_VALUE, iw_worker_take(pair.near.stack, 1, &worker));
    ANSWERS(IW_E_STATE, iw_worker_take(pair.near.stack, 0, &worker));
    ANSWERS(IW_E_STATE, iw_worker_stop(pair.near.worker));
    ANSWERS(IW_E_VALUE, iw_cq_create(ctx, 0, &cq));
    ANSWERS(IW_E_VALUE, iw_mr_register(ctx, pair.near.pd, data, 8, 1 << 20, &mr));
    ANSWERS(IW_E_VALUE, iw_mr_register(ctx, pair.near.pd, data, SIZE_MAX, 0, &mr));
    ANSWERS(IW_E_MEMORY, iw_mr_register(ctx, pair.near.pd, data, 0, 0, &mr));
    ANSWERS(IW_E_MEMORY, iw_mr_register(ctx, pair.near.pd, data, 8, IW_ACCESS_REMOTE_WRITE, &mr));
    ANSWERS(IW_OK, iw_qp_attr_init(&attr, pair.near.cq));
    attr.max_sge = 17;
    ANSWERS(IW_E_VALUE, iw_qp_create(ctx, pair.near.pd, &attr, &qp));
    attr.max_sge = 1;
    attr.core = 70000;
    ANSWERS(IW_E_VALUE, iw_qp_create(ctx, pair.near.pd, &attr, &qp));
    attr.size = 3;
    ANSWERS(IW_E_VALUE, iw_qp_create(ctx, pair.near.pd, &attr, &qp));
    ANSWERS(IW_E_VALUE, iw_addr_parse("ten", &at));
    memset(&at, 0, sizeof at);
    ANSWERS(IW_E_VALUE, iw_listen(ctx, &at));
    ANSWERS(IW_OK, iw_addr_parse("[2001:db8::1]:80", &at));
    char text[64];
    ANSWERS(IW_OK, iw_addr_text(&at, text, sizeof text));
    CHECK(strcmp(text, "[2001:db8::1]:80") == 0);
    ANSWERS(IW_E_VALUE, iw_addr_text(&at, text, 4));
    ANSWERS(IW_OK, iw_conn_params_init(&params));
    params.private_data = data;
    params.private_data_bytes = 600;
    ANSWERS(IW_E_TOO_LONG, iw_connect(ctx, pair.near.qp, &at, &params));
    params.private_data_bytes = 0;
    params.extensions = 9;
    ANSWERS(IW_E_VALUE, iw_connect(ctx, pair.near.qp, &at, &params));
    params.extensions = 0;
    params.revision = 3;
    ANSWERS(IW_E_VALUE, iw_connect(ctx, pair.near.qp, &at, &params));
    params.revision = 0;
    params.ird = 3;
    ANSWERS(IW_E_VALUE, iw_connect(ctx, pair.near.qp, &at, &params));
}

/* Requests that no queue pair takes, on one that is connected: it stays so. */
static void requests(void)
{
    struct iw_ctx *ctx = pair.near.ctx;
    struct iw_qp qp = pair.near.qp;
    struct iw_sge sges[2] = {piece(&pair.near, 0, 8), piece(&pair.near, 8, 8)};
    struct iw_send_wr wr;
    struct iw_recv_wr recv = {0};
    memset(&wr, 0, sizeof wr);
    wr.opcode = 99;
    ANSWERS(IW_E_VALUE, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.opcode = IW_WR_SEND;
    wr.flags = 1u << 20;
    ANSWERS(IW_E_VALUE, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.flags = 0;
    wr.sge_count = 17;
    wr.sges = sges;
    ANSWERS(IW_E_TOO_LONG, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.sge_count = UINT32_MAX;
    ANSWERS(IW_E_TOO_LONG, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.sge_count = 1;
    wr.sges = (const struct iw_sge *)((const char *)sges + 1);
    ANSWERS(IW_E_POINTER, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.opcode = IW_WR_READ;
    wr.sges = sges;
    wr.sge_count = 2;
    ANSWERS(IW_E_VALUE, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.opcode = IW_WR_FETCH_ADD;
    wr.sge_count = 1;
    ANSWERS(IW_E_NO_OPERATION, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.opcode = IW_WR_WRITE_IMMEDIATE;
    ANSWERS(IW_E_NO_OPERATION, iw_post_send(ctx, qp, &wr, 1, NULL));
    wr.opcode = IW_WR_WRITE;
    wr.flags = IW_SEND_INLINE;
    wr.inline_bytes = 257;
    wr.inline_data = pair.near.pool;
    ANSWERS(IW_E_TOO_LONG, iw_post_send(ctx, qp, &wr, 1, NULL));
    recv.sge_count = 17;
    ANSWERS(IW_E_TOO_LONG, iw_post_recv(ctx, qp, &recv, 1, NULL));
    recv.sge_count = 1;
    ANSWERS(IW_E_POINTER, iw_post_recv(ctx, qp, &recv, 1, NULL));
    ANSWERS(IW_E_NO_SRQ, iw_srq_post_recv(ctx, (struct iw_srq){5}, &(struct iw_recv_wr){0}, 1, NULL));
    /* More receives than the completion queue has places. */
    struct iw_recv_wr many[80];
    uint32_t posted = 0;
    memset(many, 0, sizeof many);
    ANSWERS(IW_E_CQ_FULL, iw_post_recv(ctx, qp, many, 80, &posted));
    CHECK(posted == 64);
}

/* Objects in the wrong order of ending, and twice. */
static void orders(void)
{
    struct iw_ctx *ctx = pair.near.ctx;
    struct iw_qp_attr attr;
    struct iw_qp qp, spare;
    struct iw_cq cq;
    struct iw_srq srq;
    struct iw_qp_info info = {.size = sizeof info};
    ANSWERS(IW_E_STILL_USED, iw_cq_destroy(ctx, pair.near.cq));
    ANSWERS(IW_OK, iw_cq_create(ctx, 8, &cq));
    ANSWERS(IW_OK, iw_srq_create(ctx, pair.near.pd, 8, 1, &srq));
    ANSWERS(IW_OK, iw_qp_attr_init(&attr, cq));
    attr.srq = srq;
    ANSWERS(IW_OK, iw_qp_create(ctx, pair.near.pd, &attr, &qp));
    attr.srq.id = 0;
    ANSWERS(IW_OK, iw_qp_create(ctx, pair.near.pd, &attr, &spare));
    ANSWERS(IW_E_STILL_USED, iw_srq_destroy(ctx, srq));
    ANSWERS(IW_E_STATE, iw_post_recv(ctx, qp, &(struct iw_recv_wr){0}, 1, NULL));
    ANSWERS(IW_E_STATE, iw_post_send(ctx, qp, &(struct iw_send_wr){0}, 1, NULL));
    ANSWERS(IW_E_STATE, iw_disconnect(ctx, qp));
    ANSWERS(IW_OK, iw_qp_destroy(ctx, qp));
    ANSWERS(IW_E_NO_QP, iw_qp_destroy(ctx, qp));
    ANSWERS(IW_E_NO_QP, iw_qp_query(ctx, qp, &info));
    ANSWERS(IW_E_STILL_USED, iw_cq_destroy(ctx, cq));
    ANSWERS(IW_OK, iw_qp_destroy(ctx, spare));
    ANSWERS(IW_OK, iw_srq_destroy(ctx, srq));
    ANSWERS(IW_E_NO_SRQ, iw_srq_destroy(ctx, srq));
    ANSWERS(IW_OK, iw_cq_destroy(ctx, cq));
    ANSWERS(IW_E_NO_CQ, iw_cq_destroy(ctx, cq));
}

/* A worker on a thread of the library's cannot be polled beside it. */
static void threads(void)
{
    struct iw_poll_result polled = {.size = sizeof polled};
    ANSWERS(IW_OK, iw_worker_start(pair.near.worker, -1));
    ANSWERS(IW_E_STATE, iw_worker_start(pair.near.worker, -1));
    ANSWERS(IW_E_STATE, iw_worker_poll(pair.near.worker, 1, &polled));
    ANSWERS(IW_OK, iw_worker_stop(pair.near.worker));
    CHECK(iw_worker_poll(pair.near.worker, 1, &polled) >= 0);
    CHECK(polled.idle_ns > 0);
    ANSWERS(1, iw_worker_link_up(pair.near.worker));
}

/* The world ends from below: workers first, then stacks, then what leans on them. */
static void the_end_in_the_wrong_order(void)
{
    struct iw_addr at;
    struct iw_cq cq;
    struct iw_mr_info info = {.size = sizeof info};
    struct iw_event event = {.size = sizeof event};
    ANSWERS(IW_OK, iw_addr_parse(FAR_ADDRESS, &at));
    ANSWERS(IW_OK, iw_worker_close(pair.near.worker));
    ANSWERS(IW_E_HANDLE, iw_worker_close(pair.near.worker));
    ANSWERS(IW_E_HANDLE, iw_worker_poll(pair.near.worker, 1, NULL));
    ANSWERS(IW_E_WORKER_CLOSED, iw_listen(pair.near.ctx, &at));
    ANSWERS(IW_E_WORKER_CLOSED, iw_cq_create(pair.near.ctx, 4, &cq));
    ANSWERS(0, iw_drain(pair.near.ctx, 0, NULL));
    ANSWERS(IW_OK, iw_stack_close(pair.near.stack));
    ANSWERS(IW_E_HANDLE, iw_stack_cores(pair.near.stack));
    ANSWERS(IW_OK, iw_ctx_close(pair.near.ctx));
    ANSWERS(IW_E_HANDLE, iw_event_poll(pair.near.ctx, &event));
    ANSWERS(IW_E_HANDLE, iw_ctx_close(pair.near.ctx));
    /* The memory outlives all of them. */
    ANSWERS(IW_OK, iw_mr_query(pair.near.mr, &info));
    ANSWERS(IW_OK, iw_mr_deregister(pair.near.mr));
    ANSWERS(1, iw_mr_poll_deregistered(pair.near.mr));
    free(pair.near.pool);
    /* The far end is closed with its connection up, its worker never polled again. */
    ANSWERS(IW_OK, iw_stack_close(pair.far.stack));
    ANSWERS(IW_OK, iw_ctx_close(pair.far.ctx));
    ANSWERS(IW_OK, iw_worker_close(pair.far.worker));
    ANSWERS(IW_OK, iw_mr_deregister(pair.far.mr));
    ANSWERS(1, iw_mr_poll_deregistered(pair.far.mr));
    free(pair.far.pool);
}

int main(void)
{
    CHECK(strcmp(iw_last_error(), "no error") == 0);
    pair_open(&pair);
    nulls();
    foreign_handles();
    foreign_objects();
    values();
    orders();
    pair_connect(&pair, IW_EXTENSIONS_OFF);
    requests();
    threads();
    the_end_in_the_wrong_order();
    puts("every misuse got its number");
    return 0;
}

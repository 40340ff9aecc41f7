/* Each operation once, between two stacks of one process, with every byte looked at. */
#define _POSIX_C_SOURCE 200809L
#include "check.h"

#include <unistd.h>

static struct pair pair;

static void post_recv(struct end *end, uint64_t wr_id, size_t from, uint32_t length)
{
    struct iw_sge sge = piece(end, from, length);
    struct iw_recv_wr wr = {.wr_id = wr_id, .sges = &sge, .sge_count = 1};
    uint32_t posted = 0;
    ANSWERS(IW_OK, iw_post_recv(end->ctx, end->qp, &wr, 1, &posted));
    CHECK(posted == 1);
}

static void post(struct iw_send_wr wr)
{
    uint32_t posted = 0;
    wr.flags |= IW_SEND_SIGNALED;
    ANSWERS(IW_OK, iw_post_send(pair.near.ctx, pair.near.qp, &wr, 1, &posted));
    CHECK(posted == 1);
}

static struct iw_send_wr request(uint32_t opcode, uint64_t wr_id)
{
    struct iw_send_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.opcode = opcode;
    wr.wr_id = wr_id;
    wr.remote_stag = pair.far.info.stag;
    wr.remote_offset = pair.far.info.offset;
    return wr;
}

static void done(uint32_t opcode, uint64_t wr_id, uint32_t bytes)
{
    await_completion(&pair, &pair.near, opcode, wr_id);
    CHECK(pair.near.wc.status == IW_WC_SUCCESS && pair.near.wc.byte_len == bytes);
}

static void sends(void)
{
    struct iw_sge halves[2] = {piece(&pair.near, 0, 3000), piece(&pair.near, 10000, 2000)};
    struct iw_send_wr wr = request(IW_WR_SEND, 1);
    memset(pair.near.pool, 'a', 3000);
    memset(pair.near.pool + 10000, 'b', 2000);
    wr.sges = halves;
    wr.sge_count = 2;
    post_recv(&pair.far, 7, 0, 8192);
    post(wr);
    await_completion(&pair, &pair.far, IW_WC_RECV, 7);
    CHECK(pair.far.wc.byte_len == 5000 && pair.far.wc.flags == 0);
    CHECK(memcmp(pair.far.pool, pair.near.pool, 3000) == 0);
    CHECK(memcmp(pair.far.pool + 3000, pair.near.pool + 10000, 2000) == 0);
    done(IW_WC_SEND, 1, 5000);

    wr = request(IW_WR_SEND, 2);
    wr.flags = IW_SEND_INLINE | IW_SEND_SOLICITED;
    wr.inline_data = (const uint8_t *)"inline";
    wr.inline_bytes = 6;
    post_recv(&pair.far, 8, 0, 8192);
    post(wr);
    await_completion(&pair, &pair.far, IW_WC_RECV, 8);
    CHECK(pair.far.wc.flags == IW_WC_FLAG_SOLICITED && memcmp(pair.far.pool, "inline", 6) == 0);
    done(IW_WC_SEND, 2, 6);
}

/* A list longer than the library converts at a time: one call, every request in order, one entry at its end. */
static void writes_of_a_list(void)
{
    enum { COUNT = 40, EACH = 100 };
    struct iw_send_wr wrs[COUNT];
    struct iw_sge sges[COUNT];
    uint32_t posted = 0;
    for (int i = 0; i < COUNT; i++) {
        memset(pair.near.pool + i * EACH, i + 1, EACH);
        sges[i] = piece(&pair.near, (size_t)i * EACH, EACH);
        wrs[i] = request(IW_WR_WRITE, 100 + (uint64_t)i);
        wrs[i].sges = &sges[i];
        wrs[i].sge_count = 1;
        wrs[i].remote_offset += 20000 + (uint64_t)i * EACH;
    }
    wrs[COUNT - 1].flags = IW_SEND_SIGNALED;
    ANSWERS(IW_OK, iw_post_send(pair.near.ctx, pair.near.qp, wrs, COUNT, &posted));
    CHECK(posted == COUNT);
    done(IW_WC_WRITE, 100 + COUNT - 1, EACH);
    CHECK(memcmp(pair.far.pool + 20000, pair.near.pool, COUNT * EACH) == 0);
}

/* A list of receives longer than the library converts at a time, and one with a bad receive behind good ones. */
static void receives_of_a_list(void)
{
    enum { COUNT = 20 };
    struct iw_sge sge = piece(&pair.far, 0, 64);
    struct iw_recv_wr wrs[COUNT];
    uint32_t posted = 0;
    for (int i = 0; i < COUNT; i++) {
        wrs[i] = (struct iw_recv_wr){.wr_id = 300 + (uint64_t)i, .sges = &sge, .sge_count = 1};
    }
    wrs[COUNT - 1].sge_count = 1000;
    ANSWERS(IW_E_TOO_LONG, iw_post_recv(pair.far.ctx, pair.far.qp, wrs, COUNT, &posted));
    CHECK(posted == COUNT - 1);
    for (int i = 0; i < COUNT - 1; i++) {
        struct iw_send_wr wr = request(IW_WR_SEND, 400 + (uint64_t)i);
        wr.flags = IW_SEND_INLINE;
        wr.inline_data = (const uint8_t *)"list";
        wr.inline_bytes = 4;
        post(wr);
        await_completion(&pair, &pair.far, IW_WC_RECV, 300 + (uint64_t)i);
        done(IW_WC_SEND, 400 + (uint64_t)i, 4);
    }
}

/* One bad request in a list: those before it are posted, it and the rest are not. */
static void a_list_with_a_bad_one(void)
{
    struct iw_send_wr wrs[20];
    uint32_t posted = 99;
    for (int i = 0; i < 20; i++) {
        wrs[i] = request(IW_WR_WRITE, 200 + (uint64_t)i);
        wrs[i].flags = IW_SEND_INLINE | (i == 17 ? IW_SEND_SIGNALED : 0);
        wrs[i].inline_data = (const uint8_t *)"x";
        wrs[i].inline_bytes = 1;
        wrs[i].remote_offset += 30000 + (uint64_t)i;
    }
    wrs[18].inline_data = NULL;
    ANSWERS(IW_E_POINTER, iw_post_send(pair.near.ctx, pair.near.qp, wrs, 20, &posted));
    CHECK(posted == 18);
    CHECK(strstr(iw_last_error(), "inline_data") != NULL);
    done(IW_WC_WRITE, 217, 1);
    CHECK(memcmp(pair.far.pool + 30000, "xxxxxxxxxxxxxxxxxx\0\0", 20) == 0);
}

static void reads(void)
{
    struct iw_sge sink = piece(&pair.near, 40000, 5000);
    struct iw_send_wr wr = request(IW_WR_READ, 3);
    for (int i = 0; i < 5000; i++) {
        pair.far.pool[50000 + i] = (unsigned char)(i * 7);
    }
    wr.sges = &sink;
    wr.sge_count = 1;
    wr.remote_offset += 50000;
    post(wr);
    done(IW_WC_READ, 3, 5000);
    CHECK(memcmp(pair.near.pool + 40000, pair.far.pool + 50000, 5000) == 0);
}

static uint64_t atomic(struct iw_send_wr wr)
{
    struct iw_sge sink = piece(&pair.near, 48000, 8);
    uint64_t before;
    wr.sges = &sink;
    wr.sge_count = 1;
    wr.remote_offset += 8;
    post(wr);
    done(IW_WC_ATOMIC, wr.wr_id, 8);
    memcpy(&before, pair.near.pool + 48000, 8);
    return before;
}

static void atomics(void)
{
    struct iw_send_wr wr = request(IW_WR_FETCH_ADD, 4);
    uint64_t word = 40;
    memcpy(pair.far.pool + 8, &word, 8);
    wr.compare_add = 2;
    CHECK(atomic(wr) == 40);
    wr.opcode = IW_WR_CMP_SWAP;
    wr.compare_add = 42;
    wr.compare_add_mask = UINT64_MAX;
    wr.swap = 7;
    wr.swap_mask = UINT64_MAX;
    CHECK(atomic(wr) == 42);
    CHECK(atomic(wr) == 7);
    memcpy(&word, pair.far.pool + 8, 8);
    CHECK(word == 7);
}

static void immediates(void)
{
    struct iw_send_wr wr = request(IW_WR_WRITE_IMMEDIATE, 5);
    wr.flags = IW_SEND_INLINE;
    wr.inline_data = (const uint8_t *)"written";
    wr.inline_bytes = 7;
    wr.remote_offset += 60000;
    memcpy(wr.immediate, "8 octets", 8);
    post_recv(&pair.far, 9, 0, 16);
    post(wr);
    await_completion(&pair, &pair.far, IW_WC_RECV_IMMEDIATE, 9);
    CHECK(memcmp(pair.far.wc.immediate, "8 octets", 8) == 0);
    CHECK(memcmp(pair.far.pool + 60000, "written", 7) == 0);
    done(IW_WC_IMMEDIATE, 5, 8);
}

/* A notification at the descriptor, as an event loop would wait for it. */
static void notify(void)
{
    int32_t fd = -1;
    unsigned char count[8];
    struct iw_send_wr wr = request(IW_WR_SEND, 6);
    ANSWERS(IW_OK, iw_cq_fd(pair.far.ctx, pair.far.cq, &fd));
    CHECK(fd >= 0);
    ANSWERS(IW_OK, iw_cq_arm(pair.far.ctx, pair.far.cq, 0));
    post_recv(&pair.far, 10, 0, 16);
    post(wr);
    await_completion(&pair, &pair.far, IW_WC_RECV, 10);
    CHECK(read(fd, count, 8) == 8);
    CHECK(read(fd, count, 8) == -1);
    done(IW_WC_SEND, 6, 0);
}

/* The end of a connection by force, with the wake-up of a program that waits for the event. */
static void abort_connection(void)
{
    int32_t fd = -1;
    unsigned char count[8];
    ANSWERS(IW_OK, iw_event_fd(pair.far.ctx, &fd));
    ANSWERS(IW_OK, iw_event_arm(pair.far.ctx));
    ANSWERS(0, iw_event_poll(pair.far.ctx, &pair.far.event));
    CHECK(read(fd, count, 8) == -1);
    post_recv(&pair.near, 11, 0, 16);
    ANSWERS(IW_OK, iw_abort(pair.near.ctx, pair.near.qp));
    await_completion(&pair, &pair.near, IW_WC_RECV, 11);
    CHECK(pair.near.wc.status == IW_WC_WR_FLUSH_ERR);
    await_event(&pair, &pair.near, IW_EVENT_DISCONNECTED);
    CHECK(pair.near.event.reason == IW_DISCONNECT_ABORTED);
    await_event(&pair, &pair.far, IW_EVENT_DISCONNECTED);
    CHECK(pair.far.event.reason == IW_DISCONNECT_RESET);
    CHECK(read(fd, count, 8) == 8);
}

/* A queue pair without a connection is moved to the error state. */
static void abort_idle(void)
{
    struct iw_qp connected = pair.near.qp;
    struct iw_qp_attr attr;
    struct iw_qp_info info = {.size = sizeof info};
    struct iw_send_wr wr = request(IW_WR_SEND, 13);
    ANSWERS(IW_OK, iw_qp_attr_init(&attr, pair.near.cq));
    ANSWERS(IW_OK, iw_qp_create(pair.near.ctx, pair.near.pd, &attr, &pair.near.qp));
    post_recv(&pair.near, 12, 0, 16);
    ANSWERS(IW_OK, iw_abort(pair.near.ctx, pair.near.qp));
    await_completion(&pair, &pair.near, IW_WC_RECV, 12);
    CHECK(pair.near.wc.status == IW_WC_WR_FLUSH_ERR);
    ANSWERS(IW_OK, iw_qp_query(pair.near.ctx, pair.near.qp, &info));
    CHECK(info.state == IW_QP_ERROR);
    post(wr);
    await_completion(&pair, &pair.near, IW_WC_SEND, 13);
    CHECK(pair.near.wc.status == IW_WC_WR_FLUSH_ERR);
    ANSWERS(IW_OK, iw_qp_destroy(pair.near.ctx, pair.near.qp));
    pair.near.qp = connected;
}

/* Memory of the library's, and the end of a tag that nobody can use any more. */
static void memory(void)
{
    void *address = NULL;
    struct iw_mr *mr = NULL;
    struct iw_mr_info info = {.size = sizeof info};
    ANSWERS(IW_OK, iw_mr_alloc(pair.near.ctx, pair.near.pd, 10000, IW_ACCESS_LOCAL_WRITE, &address, &mr));
    CHECK(((uintptr_t)address & 4095) == 0);
    ((unsigned char *)address)[9999] = 1;
    ANSWERS(IW_OK, iw_mr_query(mr, &info));
    ANSWERS(IW_E_STATE, iw_mr_poll_deregistered(mr));
    ANSWERS(IW_OK, iw_mr_deregister(mr));
    ANSWERS(IW_E_STATE, iw_mr_deregister(mr));
    ANSWERS(IW_E_STATE, iw_mr_query(mr, &info));
    while (iw_mr_poll_deregistered(mr) == 0) {
        turn(&pair);
    }
    ANSWERS(IW_E_HANDLE, iw_mr_poll_deregistered(mr));

    struct iw_sge gone = {info.offset, 100, info.stag};
    struct iw_send_wr wr = request(IW_WR_WRITE, 300);
    wr.sges = &gone;
    wr.sge_count = 1;
    post(wr);
    await_completion(&pair, &pair.near, IW_WC_WRITE, 300);
    CHECK(pair.near.wc.status == IW_WC_LOC_PROT_ERR);
    await_event(&pair, &pair.near, IW_EVENT_DISCONNECTED);
}

static void questions(void)
{
    struct iw_limits limits = {.size = sizeof limits};
    struct iw_qp_info info = {.size = sizeof info};
    uint64_t value = 0;
    char name[48];
    ANSWERS(IW_OK, iw_limits_query(pair.near.ctx, &limits));
    CHECK(limits.cores == 1 && limits.queue_pairs == 16 && limits.max_sge == 16 && limits.inline_bytes == 256);
    ANSWERS(IW_OK, iw_qp_query(pair.near.ctx, pair.near.qp, &info));
    CHECK(info.state == IW_QP_ESTABLISHED && info.send_depth >= 128);
    struct iw_cq_info cq = {.size = sizeof cq};
    struct iw_recv_wr recv = {0};
    ANSWERS(IW_OK, iw_cq_query(pair.near.ctx, pair.near.cq, &cq));
    CHECK(cq.depth == 64 && cq.reserved_cqes == 0 && cq.users == 2);
    struct iw_srq srq;
    struct iw_srq_info shared = {.size = sizeof shared};
    ANSWERS(IW_OK, iw_srq_create(pair.near.ctx, pair.near.pd, 8, 2, &srq));
    ANSWERS(IW_OK, iw_srq_post_recv(pair.near.ctx, srq, &recv, 1, NULL));
    ANSWERS(IW_OK, iw_srq_query(pair.near.ctx, srq, &shared));
    CHECK(shared.depth >= 8 && shared.posted == 1 && shared.max_sge == 2 && shared.users == 0);
    ANSWERS(IW_OK, iw_srq_destroy(pair.near.ctx, srq));
    struct iw_cq_attr bound;
    struct iw_srq_attr bound_srq;
    struct iw_cq of_core;
    ANSWERS(IW_OK, iw_cq_attr_init(&bound, 4));
    ANSWERS(IW_OK, iw_srq_attr_init(&bound_srq, 4, 1));
    bound.core = bound_srq.core = 0;
    ANSWERS(IW_OK, iw_cq_create_with(pair.near.ctx, &bound, &of_core));
    ANSWERS(IW_OK, iw_cq_query(pair.near.ctx, of_core, &cq));
    CHECK(cq.depth == 4 && cq.core == 0);
    ANSWERS(IW_OK, iw_cq_destroy(pair.near.ctx, of_core));
    ANSWERS(IW_OK, iw_srq_create_with(pair.near.ctx, pair.near.pd, &bound_srq, &srq));
    ANSWERS(IW_OK, iw_srq_query(pair.near.ctx, srq, &shared));
    CHECK(shared.depth == 4 && shared.core == 0);
    ANSWERS(IW_OK, iw_srq_destroy(pair.near.ctx, srq));
    bound.core = bound_srq.core = 1;
    ANSWERS(IW_E_VALUE, iw_cq_create_with(pair.near.ctx, &bound, &of_core));
    ANSWERS(IW_E_VALUE, iw_srq_create_with(pair.near.ctx, pair.near.pd, &bound_srq, &srq));
    int32_t count = iw_stack_counters(pair.near.stack);
    CHECK(count > 10);
    for (int32_t i = 0; i < count; i++) {
        uint64_t again = 0;
        ANSWERS(IW_OK, iw_stack_counter_at(pair.near.stack, (uint32_t)i, name, sizeof name, &value));
        ANSWERS(IW_OK, iw_stack_counter(pair.near.stack, name, &again));
    }
    ANSWERS(IW_E_VALUE, iw_stack_counter(pair.near.stack, "no such counter", &value));
    ANSWERS(IW_E_VALUE, iw_stack_counter_at(pair.near.stack, 0, name, 3, &value));
}

/* Returns how many events of the limit come in a few turns. */
static int limit_events(struct iw_srq srq)
{
    int found = 0;
    for (int turns = 0; turns < 8; turns++) {
        turn(&pair);
        while (iw_event_poll(pair.near.ctx, &pair.near.event) == 1) {
            CHECK(pair.near.event.kind == IW_EVENT_SRQ_LIMIT_REACHED && pair.near.event.srq.id == srq.id);
            found++;
        }
    }
    return found;
}

/* One event for each arming. An arming replaces the one before, whose event is not returned any more. */
static void limits_of_shared_receives(void)
{
    struct iw_srq srq;
    struct iw_recv_wr recv = {0};
    ANSWERS(0, iw_event_poll(pair.near.ctx, &pair.near.event));
    ANSWERS(IW_OK, iw_srq_create(pair.near.ctx, pair.near.pd, 8, 1, &srq));
    for (int posted = 0; posted < 2; posted++) {
        ANSWERS(IW_OK, iw_srq_post_recv(pair.near.ctx, srq, &recv, 1, NULL));
    }
    ANSWERS(IW_OK, iw_srq_arm(pair.near.ctx, srq, 3));
    CHECK(limit_events(srq) == 1);
    CHECK(limit_events(srq) == 0);
    /* The event of the first of two armings is on its way, or was not raised yet. */
    for (int turns = 0; turns < 3; turns++) {
        ANSWERS(IW_OK, iw_srq_arm(pair.near.ctx, srq, 4));
        for (int i = 0; i < turns; i++) {
            turn(&pair);
        }
        ANSWERS(IW_OK, iw_srq_arm(pair.near.ctx, srq, 3));
        CHECK(limit_events(srq) == 1);
        ANSWERS(IW_OK, iw_srq_arm(pair.near.ctx, srq, 4));
        for (int i = 0; i < turns; i++) {
            turn(&pair);
        }
        ANSWERS(IW_OK, iw_srq_arm(pair.near.ctx, srq, 2));
        CHECK(limit_events(srq) == 0);
        ANSWERS(IW_OK, iw_srq_arm(pair.near.ctx, srq, 0));
        CHECK(limit_events(srq) == 0);
    }
    ANSWERS(IW_OK, iw_srq_destroy(pair.near.ctx, srq));
}

static void ports(void)
{
    struct iw_port_info info = {.size = sizeof info};
    struct iw_port_address all[2];
    char text[64];
    ANSWERS(1, iw_ports(pair.near.ctx));
    ANSWERS(IW_OK, iw_port_query(pair.near.ctx, 0, &info));
    CHECK(info.size == sizeof info && info.mtu_bytes == 1500 && info.link_up == 1 && info.memory_node == -1);
    CHECK(memcmp(info.mac, "\2\0\0\0\0\1", 6) == 0 && strcmp(info.device, "memory") == 0);
    ANSWERS(1, iw_port_addresses(pair.near.ctx, 0, all, 2));
    CHECK(info.addresses == 1 && all[0].prefix_len == 24);
    ANSWERS(IW_OK, iw_addr_text(&all[0].addr, text, sizeof text));
    CHECK(strcmp(text, "10.0.0.1:0") == 0);
    ANSWERS(IW_E_VALUE, iw_port_query(pair.near.ctx, 1, &info));
    ANSWERS(IW_E_VALUE, iw_port_addresses(pair.near.ctx, 300, all, 2));
    info.size = 0;
    ANSWERS(IW_E_VALUE, iw_port_query(pair.near.ctx, 0, &info));
    CHECK(strstr(iw_last_error(), "out.size = 0") != NULL);
}

/* A second pair of queue pairs, from a source of the program's choice to a port of the library's. */
static void sources(void)
{
    struct iw_addr any, bound;
    struct iw_conn_params params;
    struct iw_qp_attr attr;
    struct iw_qp near, far;
    ANSWERS(IW_OK, iw_addr_parse("10.0.0.2:0", &any));
    ANSWERS(IW_OK, iw_listen_bound(pair.far.ctx, &any, &bound));
    CHECK(bound.port >= 49152 && memcmp(bound.ip, any.ip, 4) == 0);
    turn(&pair);
    ANSWERS(IW_OK, iw_qp_attr_init(&attr, pair.near.cq));
    ANSWERS(IW_OK, iw_qp_create(pair.near.ctx, pair.near.pd, &attr, &near));
    ANSWERS(IW_OK, iw_qp_attr_init(&attr, pair.far.cq));
    ANSWERS(IW_OK, iw_qp_create(pair.far.ctx, pair.far.pd, &attr, &far));
    ANSWERS(IW_OK, iw_conn_params_init(&params));
    ANSWERS(IW_OK, iw_addr_parse("10.0.0.1:5000", &params.source));
    ANSWERS(IW_OK, iw_connect(pair.near.ctx, near, &bound, &params));
    await_event(&pair, &pair.far, IW_EVENT_CONNECT_REQUEST);
    CHECK(memcmp(&pair.far.event.remote, &params.source, sizeof params.source) == 0);
    CHECK(memcmp(&pair.far.event.local, &bound, sizeof bound) == 0);
    ANSWERS(IW_OK, iw_accept(pair.far.ctx, &pair.far.event.request, far, NULL));
    await_event(&pair, &pair.near, IW_EVENT_ESTABLISHED);
    CHECK(memcmp(&pair.near.event.local, &params.source, sizeof params.source) == 0);
    CHECK(memcmp(&pair.near.event.remote, &bound, sizeof bound) == 0);
    await_event(&pair, &pair.far, IW_EVENT_ESTABLISHED);
    ANSWERS(IW_OK, iw_qp_destroy(pair.near.ctx, near));
    await_event(&pair, &pair.far, IW_EVENT_DISCONNECTED);
    ANSWERS(IW_OK, iw_qp_destroy(pair.far.ctx, far));
    ANSWERS(IW_OK, iw_addr_parse("10.0.0.99:5000", &params.source));
    ANSWERS(IW_OK, iw_qp_attr_init(&attr, pair.near.cq));
    ANSWERS(IW_OK, iw_qp_create(pair.near.ctx, pair.near.pd, &attr, &near));
    ANSWERS(IW_OK, iw_connect(pair.near.ctx, near, &bound, &params));
    await_event(&pair, &pair.near, IW_EVENT_CONNECT_FAILED);
    CHECK(pair.near.event.reason == IW_CONNECT_FAILURE_SOURCE);
    ANSWERS(IW_OK, iw_qp_destroy(pair.near.ctx, near));
    ANSWERS(IW_OK, iw_unlisten(pair.far.ctx, &bound));
}

int main(void)
{
    CHECK(iw_abi_version() == IW_ABI_VERSION);
    pair_open(&pair);
    pair_connect(&pair, IW_EXTENSIONS_RFC7306);
    questions();
    limits_of_shared_receives();
    ports();
    sends();
    writes_of_a_list();
    receives_of_a_list();
    a_list_with_a_bad_one();
    reads();
    atomics();
    immediates();
    notify();
    sources();
    abort_idle();
    memory();
    pair_join_again(&pair, IW_EXTENSIONS_RFC7306, IW_EXTENSIONS_RFC7306);
    abort_connection();
    pair_close(&pair);
    puts("every operation was carried out");
    return 0;
}

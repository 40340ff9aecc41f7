/* The server: each call of the step function handles all events and completions, and returns. It never waits. */
#include "embed.h"

#include <rte_byteorder.h>
#include <stdio.h>
#include <string.h>

enum { AREA_BYTES = SLICE_BYTES + RECEIVES * MESSAGE_BYTES };

int server_open(struct server *server, struct iw_stack *stack, const struct iw_addr *at)
{
    uint32_t all = IW_ACCESS_LOCAL_WRITE | IW_ACCESS_REMOTE_WRITE | IW_ACCESS_REMOTE_READ;
    memset(server, 0, sizeof *server);
    server->at = *at;
    if (iw_ctx_open(stack, &server->ctx) != IW_OK || iw_pd_alloc(server->ctx, &server->pd) != IW_OK) {
        return report_error("opening a context");
    }
    if (iw_cq_create(server->ctx, CLIENTS_MAX * 4 * RECEIVES, &server->cq) != IW_OK) {
        return report_error("making a completion queue");
    }
    if (pool_open(&server->pool, server->ctx, server->pd, (size_t)CLIENTS_MAX * AREA_BYTES, all) != 0) {
        return -1;
    }
    for (size_t i = 0; i < CLIENTS_MAX; i++) {
        server->clients[i].slice = i * AREA_BYTES;
        server->clients[i].messages = i * AREA_BYTES + SLICE_BYTES;
    }
    return iw_listen(server->ctx, at) == IW_OK ? 0 : report_error("listening");
}

static int post_receive(struct server *server, const struct client_slot *slot, uint64_t number)
{
    struct iw_sge sge = pool_sge(&server->pool, slot->messages + (size_t)number * MESSAGE_BYTES, MESSAGE_BYTES);
    struct iw_recv_wr wr = {.wr_id = number, .sges = &sge, .sge_count = 1};
    return iw_post_recv(server->ctx, slot->qp, &wr, 1, NULL) == IW_OK ? 0 : report_error("posting a receive");
}

static struct client_slot *free_slot(struct server *server)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (!server->clients[i].used) {
            return &server->clients[i];
        }
    }
    return NULL;
}

static int prepare(struct server *server, struct client_slot *slot)
{
    struct iw_qp_attr attr;
    struct iw_qp_info info = {.size = sizeof info};
    if (iw_qp_attr_init(&attr, server->cq) != IW_OK) {
        return report_error("queue pair attributes");
    }
    attr.send_depth = attr.recv_depth = RECEIVES;
    if (iw_qp_create(server->ctx, server->pd, &attr, &slot->qp) != IW_OK ||
        iw_qp_query(server->ctx, slot->qp, &info) != IW_OK) {
        return report_error("making a queue pair");
    }
    slot->used = true;
    slot->qp_num = info.num;
    memset(server->pool.bytes + slot->slice, 0, SLICE_BYTES);
    for (uint64_t number = 0; number < RECEIVES; number++) {
        if (post_receive(server, slot, number) != 0) {
            return -1;
        }
    }
    return 0;
}

static int accept_client(struct server *server, const struct iw_event *event)
{
    static const uint8_t full[] = "no place left";
    struct client_slot *slot = free_slot(server);
    if (slot == NULL) {
        return iw_reject(server->ctx, &event->request, full, sizeof full - 1) == IW_OK ? 0 : report_error("rejecting");
    }
    if (prepare(server, slot) != 0) {
        return -1;
    }
    struct iw_conn_params params;
    uint8_t advertisement[ADVERTISEMENT_BYTES];
    uint32_t stag = rte_cpu_to_be_32(server->pool.info.stag), length = rte_cpu_to_be_32(SLICE_BYTES);
    uint64_t offset = rte_cpu_to_be_64(server->pool.info.offset + slot->slice);
    memcpy(advertisement, &stag, 4);
    memcpy(advertisement + 4, &offset, 8);
    memcpy(advertisement + 12, &length, 4);
    iw_conn_params_init(&params);
    params.private_data = advertisement;
    params.private_data_bytes = sizeof advertisement;
    return iw_accept(server->ctx, &event->request, slot->qp, &params) == IW_OK ? 0 : report_error("accepting");
}

static void release_client(struct server *server, struct iw_qp qp)
{
    for (int i = 0; i < CLIENTS_MAX; i++) {
        struct client_slot *slot = &server->clients[i];
        if (slot->used && slot->qp.id == qp.id) {
            iw_qp_destroy(server->ctx, qp);
            slot->used = false;
        }
    }
}

static int post_reply(struct server *server, const struct client_slot *slot, const void *bytes, uint32_t length)
{
    struct iw_send_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.opcode = IW_WR_SEND;
    wr.flags = IW_SEND_INLINE;
    wr.inline_data = bytes;
    wr.inline_bytes = length;
    int32_t posted = iw_post_send(server->ctx, slot->qp, &wr, 1, NULL);
    /* An event reports a client that disconnected meanwhile. */
    return posted == IW_OK || posted == IW_E_STATE ? 0 : report_error("answering");
}

static int on_message(struct server *server, const struct client_slot *slot, const struct iw_wc *wc)
{
    unsigned char message[MESSAGE_BYTES];
    uint32_t seed;
    memcpy(message, server->pool.bytes + slot->messages + (size_t)wc->wr_id * MESSAGE_BYTES, wc->byte_len);
    /* The receive is posted again before the reply: the client may send as soon as it has the reply. */
    if (post_receive(server, slot, wc->wr_id) != 0) {
        return -1;
    }
    switch (wc->byte_len == 0 ? 0 : message[0]) {
    case 'E':
        return post_reply(server, slot, message, wc->byte_len);
    case 'V':
        memcpy(&seed, message + 1, sizeof seed);
        return post_reply(server, slot,
                      pattern_holds(server->pool.bytes + slot->slice, SLICE_BYTES, seed) ? "Y" : "N", 1);
    case 'B':
        server->served++;
        return post_reply(server, slot, "B", 1);
    default:
        return post_reply(server, slot, "?", 1);
    }
}

static int on_completion(struct server *server, const struct iw_wc *wc)
{
    if (wc->opcode != IW_WC_RECV || wc->status != IW_WC_SUCCESS) {
        return 0; /* Sends that failed and receives that were flushed: the connection's event says it. */
    }
    for (int i = 0; i < CLIENTS_MAX; i++) {
        if (server->clients[i].used && server->clients[i].qp_num == wc->qp_num) {
            return on_message(server, &server->clients[i], wc);
        }
    }
    return 0;
}

int server_step(struct server *server)
{
    struct iw_event event = {.size = sizeof event};
    struct iw_wc wcs[16];
    while (iw_event_poll(server->ctx, &event) == 1) {
        if (event.kind == IW_EVENT_CONNECT_REQUEST && accept_client(server, &event) != 0) {
            return -1;
        }
        if (event.kind == IW_EVENT_DISCONNECTED || event.kind == IW_EVENT_CONNECT_FAILED) {
            release_client(server, event.qp);
        }
        if (event.kind == IW_EVENT_LISTEN_FAILED) {
            fprintf(stderr, "embed-c: the address is taken\n");
            return -1;
        }
    }
    int32_t found = iw_cq_poll(server->ctx, server->cq, wcs, 16);
    for (int32_t i = 0; i < found; i++) {
        if (on_completion(server, &wcs[i]) != 0) {
            return -1;
        }
    }
    return found < 0 ? report_error("polling") : 0;
}

int server_close(struct server *server, poll_fn poll, void *arg)
{
    if (iw_unlisten(server->ctx, &server->at) != IW_OK || drain(server->ctx, poll, arg) != 0 ||
        pool_close(&server->pool, poll, arg) != 0) {
        return -1;
    }
    return iw_ctx_close(server->ctx) == IW_OK ? 0 : report_error("closing the context");
}

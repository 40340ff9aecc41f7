/* The client: writes its slice of the server, lets the server check it, reads it back, and sends messages to and fro. */
#include "embed.h"

#include <rte_byteorder.h>
#include <stdio.h>
#include <string.h>

/* The pool: the data to write, the data read back, the received messages. */
enum { SOURCE = 0, SINK = SLICE_BYTES, MESSAGE = 2 * SLICE_BYTES, POOL = 2 * SLICE_BYTES + MESSAGE_BYTES };

int client_open(struct client *client, struct iw_stack *stack)
{
    struct iw_qp_attr attr;
    memset(client, 0, sizeof *client);
    if (iw_ctx_open(stack, &client->ctx) != IW_OK || iw_pd_alloc(client->ctx, &client->pd) != IW_OK ||
        iw_cq_create(client->ctx, 64, &client->cq) != IW_OK || iw_qp_attr_init(&attr, client->cq) != IW_OK ||
        iw_qp_create(client->ctx, client->pd, &attr, &client->qp) != IW_OK) {
        return report_error("opening a context");
    }
    return pool_open(&client->pool, client->ctx, client->pd, POOL, IW_ACCESS_LOCAL_WRITE);
}

static int wait_connected(struct client *client, poll_fn poll, void *arg)
{
    struct iw_event event = {.size = sizeof event};
    uint64_t limit = iw_now_ns() + 20 * SECOND_NS;
    for (;;) {
        if (!poll(arg) || iw_now_ns() > limit) {
            fprintf(stderr, "embed-c: no answer\n");
            return -1;
        }
        if (iw_event_poll(client->ctx, &event) != 1) {
            continue;
        }
        if (event.kind == IW_EVENT_ESTABLISHED && event.private_data_bytes == ADVERTISEMENT_BYTES) {
            memcpy(&client->stag, event.private_data, 4);
            memcpy(&client->offset, event.private_data + 4, 8);
            client->stag = rte_be_to_cpu_32(client->stag);
            client->offset = rte_be_to_cpu_64(client->offset);
            return 0;
        }
        if (event.kind == IW_EVENT_REJECTED || event.kind == IW_EVENT_CONNECT_FAILED) {
            fprintf(stderr, "embed-c: the connection did not come about: %u %.*s\n", event.reason,
                    (int)event.private_data_bytes, (const char *)event.private_data);
            return -1;
        }
    }
}

/* Waits for one completion. The program waits, since no call of the library does. */
static int wait_completion(struct client *client, uint32_t opcode, poll_fn poll, void *arg)
{
    struct iw_wc wc;
    uint64_t limit = iw_now_ns() + 20 * SECOND_NS;
    int32_t found;
    while ((found = iw_cq_poll(client->ctx, client->cq, &wc, 1)) == 0) {
        if (!poll(arg) || iw_now_ns() > limit) {
            fprintf(stderr, "embed-c: no completion\n");
            return -1;
        }
    }
    if (found < 0) {
        return report_error("polling");
    }
    if (wc.status != IW_WC_SUCCESS || wc.opcode != opcode) {
        fprintf(stderr, "embed-c: completion of kind %u, status %u\n", wc.opcode, wc.status);
        return -1;
    }
    return (int)wc.byte_len;
}

/* An RDMA Write of the source to the slice, or a Read of the slice into the sink. */
static int move_slice(struct client *client, uint32_t opcode)
{
    struct iw_sge sge = pool_sge(&client->pool, opcode == IW_WR_WRITE ? SOURCE : SINK, SLICE_BYTES);
    struct iw_send_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.opcode = opcode;
    wr.flags = IW_SEND_SIGNALED;
    wr.sges = &sge;
    wr.sge_count = 1;
    wr.remote_stag = client->stag;
    wr.remote_offset = client->offset;
    return iw_post_send(client->ctx, client->qp, &wr, 1, NULL) == IW_OK ? 0 : report_error("posting");
}

/* Sends a message and returns the length of the reply at MESSAGE. */
static int send_request(struct client *client, const void *bytes, uint32_t length, poll_fn poll, void *arg)
{
    struct iw_sge sge = pool_sge(&client->pool, MESSAGE, MESSAGE_BYTES);
    struct iw_recv_wr recv = {.sges = &sge, .sge_count = 1};
    struct iw_send_wr wr;
    memset(&wr, 0, sizeof wr);
    wr.opcode = IW_WR_SEND;
    wr.flags = IW_SEND_INLINE;
    wr.inline_data = bytes;
    wr.inline_bytes = length;
    if (iw_post_recv(client->ctx, client->qp, &recv, 1, NULL) != IW_OK ||
        iw_post_send(client->ctx, client->qp, &wr, 1, NULL) != IW_OK) {
        return report_error("posting");
    }
    return wait_completion(client, IW_WC_RECV, poll, arg);
}

static bool is_reply(const struct client *client, int length, const void *expected, int expected_length)
{
    return length == expected_length && memcmp(client->pool.bytes + MESSAGE, expected, (size_t)length) == 0;
}

static int run_round(struct client *client, uint32_t seed, poll_fn poll, void *arg)
{
    unsigned char verify[5] = {'V'}, echo[MESSAGE_BYTES] = {'E'};
    uint32_t echoed = 1 + seed * 7 % (MESSAGE_BYTES - 1);
    memcpy(verify + 1, &seed, sizeof seed);
    pattern_fill(client->pool.bytes + SOURCE, SLICE_BYTES, seed);
    memset(client->pool.bytes + SINK, 0, SLICE_BYTES);
    pattern_fill(echo + 1, echoed - 1, seed);
    if (move_slice(client, IW_WR_WRITE) != 0 || wait_completion(client, IW_WC_WRITE, poll, arg) != SLICE_BYTES) {
        return -1;
    }
    if (!is_reply(client, send_request(client, verify, sizeof verify, poll, arg), "Y", 1)) {
        fprintf(stderr, "embed-c: round %u: the server has other bytes than were written\n", seed);
        return -1;
    }
    if (move_slice(client, IW_WR_READ) != 0 || wait_completion(client, IW_WC_READ, poll, arg) != SLICE_BYTES ||
        !pattern_holds(client->pool.bytes + SINK, SLICE_BYTES, seed)) {
        fprintf(stderr, "embed-c: round %u: other bytes were read than were written\n", seed);
        return -1;
    }
    if (!is_reply(client, send_request(client, echo, echoed, poll, arg), echo, (int)echoed)) {
        fprintf(stderr, "embed-c: round %u: the echo is another\n", seed);
        return -1;
    }
    return 0;
}

int client_run(struct client *client, const struct iw_addr *server, unsigned rounds, poll_fn poll, void *arg)
{
    if (iw_connect(client->ctx, client->qp, server, NULL) != IW_OK) {
        return report_error("connecting");
    }
    if (wait_connected(client, poll, arg) != 0) {
        return -1;
    }
    for (uint32_t seed = 1; seed <= rounds; seed++) {
        if (run_round(client, seed, poll, arg) != 0) {
            return -1;
        }
    }
    if (!is_reply(client, send_request(client, "B", 1, poll, arg), "B", 1)) {
        fprintf(stderr, "embed-c: no goodbye\n");
        return -1;
    }
    printf("%u rounds of %d bytes written, checked, read and echoed\n", rounds, SLICE_BYTES);
    return 0;
}

int client_close(struct client *client, poll_fn poll, void *arg)
{
    if (drain(client->ctx, poll, arg) != 0 || pool_close(&client->pool, poll, arg) != 0) {
        return -1;
    }
    return iw_ctx_close(client->ctx) == IW_OK ? 0 : report_error("closing the context");
}

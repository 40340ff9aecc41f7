/* A program whose structs end earlier than the library's, as those of an older header would. The lengths are those before
 * the last fields that were added. */
#include "check.h"

#include <stddef.h>

static struct pair pair;

/* Requests of an older header: no operands of atomic operations, no windows. */
struct old_send_wr {
    uint64_t wr_id;
    uint32_t opcode, flags;
    const struct iw_sge *sges;
    uint32_t sge_count, remote_stag;
    uint64_t remote_offset;
    const uint8_t *inline_data;
    uint32_t inline_bytes, invalidate_stag;
};

/* Completions without Immediate Data. */
struct old_wc {
    uint64_t wr_id;
    uint32_t qp_num, byte_len, status, opcode, flags, invalidated_stag;
};

/* Requests and completions of a header that is newer than the library. */
struct new_send_wr {
    struct iw_send_wr known;
    uint64_t unknown;
};

struct new_wc {
    struct iw_wc known;
    uint64_t unknown;
};

static void writes_of_an_older_header(void)
{
    enum { COUNT = 20 };
    struct old_send_wr wrs[COUNT];
    struct old_wc wcs[2];
    uint32_t posted = 0;
    memset(wrs, 0, sizeof wrs);
    for (uint32_t i = 0; i < COUNT; i++) {
        wrs[i].wr_id = i;
        wrs[i].opcode = IW_WR_WRITE;
        wrs[i].flags = IW_SEND_INLINE | (i >= COUNT - 2 ? IW_SEND_SIGNALED : 0);
        wrs[i].inline_data = (const uint8_t *)"old";
        wrs[i].inline_bytes = 3;
        wrs[i].remote_stag = pair.far.info.stag;
        wrs[i].remote_offset = pair.far.info.offset + 3 * i;
    }
    ANSWERS(IW_OK, iw_post_send_sized(pair.near.ctx, pair.near.qp, (const struct iw_send_wr *)(const void *)wrs,
                                      sizeof wrs[0], COUNT, &posted));
    CHECK(posted == COUNT);
    int32_t found = 0;
    while (found < 2) {
        turn(&pair);
        int32_t more = iw_cq_poll_sized(pair.near.ctx, pair.near.cq, (struct iw_wc *)(void *)&wcs[found],
                                        sizeof wcs[0], (uint32_t)(2 - found));
        CHECK(more >= 0);
        found += more;
    }
    CHECK(wcs[0].wr_id == COUNT - 2 && wcs[1].wr_id == COUNT - 1 && wcs[1].status == IW_WC_SUCCESS);
    CHECK(memcmp(pair.far.pool, "oldoldold", 9) == 0);
}

static void requests_of_a_newer_header(void)
{
    struct new_send_wr wrs[2];
    struct new_wc wc;
    uint32_t posted = 9;
    memset(wrs, 0, sizeof wrs);
    memset(&wc, 0xff, sizeof wc);
    for (int i = 0; i < 2; i++) {
        wrs[i].known.wr_id = 50 + (uint64_t)i;
        wrs[i].known.opcode = IW_WR_WRITE;
        wrs[i].known.flags = IW_SEND_INLINE | IW_SEND_SIGNALED;
        wrs[i].known.remote_stag = pair.far.info.stag;
        wrs[i].known.remote_offset = pair.far.info.offset;
    }
    wrs[1].unknown = 1;
    const struct iw_send_wr *first = &wrs[0].known;
    ANSWERS(IW_E_UNSUPPORTED,
            iw_post_send_sized(pair.near.ctx, pair.near.qp, first, sizeof wrs[0], 2, &posted));
    CHECK(posted == 0);
    ANSWERS(IW_OK, iw_post_send_sized(pair.near.ctx, pair.near.qp, first, sizeof wrs[0], 1, &posted));
    while (iw_cq_poll_sized(pair.near.ctx, pair.near.cq, &wc.known, sizeof wc, 1) == 0) {
        turn(&pair);
    }
    CHECK(wc.known.wr_id == 50 && wc.unknown == 0);
}

/* The lengths that these structs had before their last fields. */
static void attributes_of_an_older_header(void)
{
    struct iw_qp_attr attr;
    struct iw_conn_params params;
    struct iw_qp qp;
    struct iw_addr at;
    memset(&attr, 0xff, sizeof attr);
    memset(&params, 0xff, sizeof params);
    ANSWERS(IW_OK, iw_qp_attr_init_sized(&attr, offsetof(struct iw_qp_attr, srq_share), pair.near.cq));
    ANSWERS(IW_OK, iw_conn_params_init_sized(&params, offsetof(struct iw_conn_params, source)));
    CHECK(attr.size == offsetof(struct iw_qp_attr, srq_share) && attr.srq_share == 0xffffffff);
    CHECK(params.size == offsetof(struct iw_conn_params, source) && params.source.family == 0xffff);
    ANSWERS(IW_OK, iw_qp_create(pair.near.ctx, pair.near.pd, &attr, &qp));
    ANSWERS(IW_OK, iw_addr_parse("10.0.0.2:9", &at));
    ANSWERS(IW_OK, iw_connect(pair.near.ctx, qp, &at, &params));
    await_event(&pair, &pair.near, IW_EVENT_CONNECT_FAILED);
    CHECK(pair.near.event.reason == IW_CONNECT_FAILURE_REFUSED);
    ANSWERS(IW_OK, iw_qp_destroy(pair.near.ctx, qp));
    ANSWERS(IW_E_VALUE, iw_qp_attr_init_sized(&attr, 0, pair.near.cq));
    ANSWERS(IW_E_VALUE, iw_conn_params_init_sized(&params, 100000));
    struct {
        struct iw_qp_attr known;
        uint64_t unknown;
    } newer;
    ANSWERS(IW_OK, iw_qp_attr_init_sized(&newer.known, sizeof newer, pair.near.cq));
    CHECK(newer.known.size == sizeof newer && newer.unknown == 0);
    ANSWERS(IW_OK, iw_qp_create(pair.near.ctx, pair.near.pd, &newer.known, &qp));
    ANSWERS(IW_OK, iw_qp_destroy(pair.near.ctx, qp));
    newer.unknown = 1;
    ANSWERS(IW_E_UNSUPPORTED, iw_qp_create(pair.near.ctx, pair.near.pd, &newer.known, &qp));
}

static void sizes_that_are_none(void)
{
    struct iw_wc wc;
    struct iw_send_wr wr = {0};
    struct iw_limits limits = {.size = 2};
    size_t sizes[] = {0, 4, 12, 5000, (size_t)-8};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        ANSWERS(IW_E_VALUE, iw_cq_poll_sized(pair.near.ctx, pair.near.cq, &wc, sizes[i], 1));
        ANSWERS(IW_E_VALUE, iw_post_send_sized(pair.near.ctx, pair.near.qp, &wr, sizes[i], 1, NULL));
    }
    ANSWERS(IW_E_VALUE, iw_limits_query(pair.near.ctx, &limits));
}

int main(void)
{
    pair_open(&pair);
    pair_connect(&pair, IW_EXTENSIONS_RFC7306);
    writes_of_an_older_header();
    requests_of_a_newer_header();
    attributes_of_an_older_header();
    sizes_that_are_none();
    pair_close(&pair);
    puts("programs of other headers work");
    return 0;
}

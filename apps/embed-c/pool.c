/* Memory from DPDK's pages (huge pages if the machine has them), registered; patterns; the orderly end. */
#include "embed.h"

#include <rte_malloc.h>
#include <stdio.h>
#include <string.h>

int report_error(const char *what)
{
    fprintf(stderr, "embed-c: %s: %s\n", what, iw_last_error());
    return -1;
}

int pool_open(struct pool *pool, struct iw_ctx *ctx, struct iw_pd pd, size_t length, uint32_t access)
{
    pool->length = length;
    pool->bytes = rte_zmalloc("embed-c", length, 4096);
    if (pool->bytes == NULL) {
        fprintf(stderr, "embed-c: DPDK has no %zu bytes left\n", length);
        return -1;
    }
    if (iw_mr_register(ctx, pd, pool->bytes, length, access, &pool->mr) != IW_OK) {
        return report_error("registering the pool");
    }
    pool->info.size = sizeof pool->info;
    return iw_mr_query(pool->mr, &pool->info) == IW_OK ? 0 : report_error("asking about the pool");
}

/* The bytes return to DPDK only when no core uses them. */
int pool_close(struct pool *pool, poll_fn poll, void *arg)
{
    if (iw_mr_deregister(pool->mr) != IW_OK) {
        return report_error("releasing the pool");
    }
    int32_t over;
    while ((over = iw_mr_poll_deregistered(pool->mr)) == 0) {
        poll(arg);
    }
    rte_free(pool->bytes);
    return over == 1 ? 0 : report_error("waiting for the pool");
}

struct iw_sge pool_sge(const struct pool *pool, size_t from, uint32_t length)
{
    struct iw_sge sge = {pool->info.offset + from, length, pool->info.stag};
    return sge;
}

int drain(struct iw_ctx *ctx, poll_fn poll, void *arg)
{
    uint64_t deadline = iw_now_ns() + 5 * SECOND_NS;
    int32_t open;
    while ((open = iw_drain(ctx, deadline, NULL)) > 0) {
        poll(arg);
    }
    return open == 0 ? 0 : report_error("draining");
}

static unsigned char pattern_byte(size_t at, uint32_t seed)
{
    uint32_t mixed = ((uint32_t)at ^ seed) * 2654435761u;
    return (unsigned char)(mixed >> 24);
}

void pattern_fill(unsigned char *bytes, size_t length, uint32_t seed)
{
    for (size_t at = 0; at < length; at++) {
        bytes[at] = pattern_byte(at, seed);
    }
}

bool pattern_holds(const unsigned char *bytes, size_t length, uint32_t seed)
{
    for (size_t at = 0; at < length; at++) {
        if (bytes[at] != pattern_byte(at, seed)) {
            return false;
        }
    }
    return true;
}

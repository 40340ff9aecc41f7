/* What Rust sees of DPDK: the headers that bindgen walks, wrappers for the static inlines, and macros as constants.
 *
 * Every wrapper moves a whole burst, or belongs to the control path: crossing the language border costs about a
 * nanosecond, which is nothing per burst and a lot per frame. */
#ifndef DSYS_SHIM_H
#define DSYS_SHIM_H

#include <stdint.h>

#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_eth_ring.h>
#include <rte_ethdev.h>
#include <rte_lcore.h>
#include <rte_mbuf.h>
#include <rte_mempool.h>
#include <rte_ring.h>
#include <rte_version.h>

/* The data path. */
uint16_t dsys_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t room);
uint16_t dsys_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count);
int dsys_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **frames, unsigned int count);
struct rte_mbuf *dsys_chain(struct rte_mempool *pool, struct rte_mbuf *const *frames, uint16_t count, uint16_t from);
int dsys_prepare(uint16_t port, uint16_t queue, struct rte_mbuf *frame);
void dsys_free(struct rte_mbuf *frame);

/* What a pool is made of. */
struct dsys_pool_shape {
	uint32_t frames;
	/* Frames that a thread's cache holds back. */
	uint32_t cache_frames;
	/* Bytes in each buffer, head room included. */
	uint16_t room_bytes;
	/* Nonzero: with ordinary pages each frame fills a page of its own, which an XDP socket needs. */
	uint16_t page_each;
	int32_t numa_node;
};

/* Threads. */
unsigned int dsys_lcore_id(void);
int dsys_enter_thread(void);

/* Control. */
int dsys_errno(void);
int dsys_link(uint16_t port, uint32_t *speed_mbps);
int dsys_spread_evenly(uint16_t port, uint16_t entries, uint16_t queues);
struct rte_mempool *dsys_pool_create(const char *name, const struct dsys_pool_shape *shape);
unsigned int dsys_ring_drain(struct rte_ring *ring, struct rte_mbuf **frames, unsigned int room);

/* For the layout test alone: what the compiler makes of the bit field. */
uint64_t dsys_pack_tx_offload(uint64_t l2_bytes, uint64_t l3_bytes, uint64_t l4_bytes, uint64_t segment_bytes);

/* The release whose headers this was compiled with. */
static const uint32_t DSYS_VERSION_YEAR = RTE_VER_YEAR;
static const uint32_t DSYS_VERSION_MONTH = RTE_VER_MONTH;
static const uint32_t DSYS_VERSION_MINOR = RTE_VER_MINOR;

/* Macros: their types differ from release to release, so each is pinned to one here. */
static const uint32_t DSYS_LCORE_ID_ANY = LCORE_ID_ANY;
static const uint32_t DSYS_MAX_LCORE = RTE_MAX_LCORE;
static const uint32_t DSYS_PKTMBUF_HEADROOM = RTE_PKTMBUF_HEADROOM;
static const uint32_t DSYS_MEMPOOL_CACHE_MAX_SIZE = RTE_MEMPOOL_CACHE_MAX_SIZE;
static const uint32_t DSYS_RING_F_SP_ENQ = RING_F_SP_ENQ;
static const uint32_t DSYS_RING_F_SC_DEQ = RING_F_SC_DEQ;
static const int32_t DSYS_SOCKET_ID_ANY = SOCKET_ID_ANY;
static const uint16_t DSYS_MAX_ETHPORTS = RTE_MAX_ETHPORTS;
static const uint32_t DSYS_ETH_NAME_MAX_LEN = RTE_ETH_NAME_MAX_LEN;

static const uint64_t DSYS_MBUF_RX_RSS_HASH = RTE_MBUF_F_RX_RSS_HASH;
static const uint64_t DSYS_MBUF_RX_IP_CKSUM_MASK = RTE_MBUF_F_RX_IP_CKSUM_MASK;
static const uint64_t DSYS_MBUF_RX_IP_CKSUM_GOOD = RTE_MBUF_F_RX_IP_CKSUM_GOOD;
static const uint64_t DSYS_MBUF_RX_IP_CKSUM_BAD = RTE_MBUF_F_RX_IP_CKSUM_BAD;
static const uint64_t DSYS_MBUF_RX_IP_CKSUM_NONE = RTE_MBUF_F_RX_IP_CKSUM_NONE;
static const uint64_t DSYS_MBUF_RX_L4_CKSUM_MASK = RTE_MBUF_F_RX_L4_CKSUM_MASK;
static const uint64_t DSYS_MBUF_RX_L4_CKSUM_GOOD = RTE_MBUF_F_RX_L4_CKSUM_GOOD;
static const uint64_t DSYS_MBUF_RX_L4_CKSUM_BAD = RTE_MBUF_F_RX_L4_CKSUM_BAD;
static const uint64_t DSYS_MBUF_RX_L4_CKSUM_NONE = RTE_MBUF_F_RX_L4_CKSUM_NONE;
static const uint64_t DSYS_MBUF_RX_LRO = RTE_MBUF_F_RX_LRO;
static const uint64_t DSYS_MBUF_TX_IPV4 = RTE_MBUF_F_TX_IPV4;
static const uint64_t DSYS_MBUF_TX_IP_CKSUM = RTE_MBUF_F_TX_IP_CKSUM;
static const uint64_t DSYS_MBUF_TX_TCP_CKSUM = RTE_MBUF_F_TX_TCP_CKSUM;
static const uint64_t DSYS_MBUF_TX_TCP_SEG = RTE_MBUF_F_TX_TCP_SEG;
static const uint64_t DSYS_MBUF_TX_IPV6 = RTE_MBUF_F_TX_IPV6;
static const uint64_t DSYS_MBUF_INDIRECT = RTE_MBUF_F_INDIRECT;
static const uint64_t DSYS_MBUF_EXTERNAL = RTE_MBUF_F_EXTERNAL;

static const uint64_t DSYS_RX_OFFLOAD_IPV4_CKSUM = RTE_ETH_RX_OFFLOAD_IPV4_CKSUM;
static const uint64_t DSYS_RX_OFFLOAD_TCP_CKSUM = RTE_ETH_RX_OFFLOAD_TCP_CKSUM;
static const uint64_t DSYS_RX_OFFLOAD_TCP_LRO = RTE_ETH_RX_OFFLOAD_TCP_LRO;
static const uint64_t DSYS_RX_OFFLOAD_SCATTER = RTE_ETH_RX_OFFLOAD_SCATTER;
static const uint64_t DSYS_RX_OFFLOAD_RSS_HASH = RTE_ETH_RX_OFFLOAD_RSS_HASH;
static const uint64_t DSYS_TX_OFFLOAD_IPV4_CKSUM = RTE_ETH_TX_OFFLOAD_IPV4_CKSUM;
static const uint64_t DSYS_TX_OFFLOAD_TCP_CKSUM = RTE_ETH_TX_OFFLOAD_TCP_CKSUM;
static const uint64_t DSYS_TX_OFFLOAD_TCP_TSO = RTE_ETH_TX_OFFLOAD_TCP_TSO;
static const uint64_t DSYS_TX_OFFLOAD_MULTI_SEGS = RTE_ETH_TX_OFFLOAD_MULTI_SEGS;
static const uint64_t DSYS_RSS_IPV4 = RTE_ETH_RSS_IPV4;
static const uint64_t DSYS_RSS_NONFRAG_IPV4_TCP = RTE_ETH_RSS_NONFRAG_IPV4_TCP;
static const uint64_t DSYS_RSS_IPV6 = RTE_ETH_RSS_IPV6;
static const uint64_t DSYS_RSS_NONFRAG_IPV6_TCP = RTE_ETH_RSS_NONFRAG_IPV6_TCP;
static const uint32_t DSYS_MQ_RX_RSS = RTE_ETH_MQ_RX_RSS;

#endif

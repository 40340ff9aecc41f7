/* DPDK's static inlines as functions, and the mbuf layout that mbuf.rs relies on, checked by the compiler. */
#include "shim.h"

#include <pthread.h>
#include <stddef.h>

#include <rte_mbuf_pool_ops.h>

#define LAYOUT(field, offset) \
	_Static_assert(offsetof(struct rte_mbuf, field) == (offset), \
		"struct rte_mbuf: " #field " has moved; adjust dpdk-sys/src/mbuf.rs to this DPDK release")

LAYOUT(buf_addr, 0);
LAYOUT(data_off, 16);
LAYOUT(refcnt, 18);
LAYOUT(nb_segs, 20);
LAYOUT(port, 22);
LAYOUT(ol_flags, 24);
LAYOUT(packet_type, 32);
LAYOUT(pkt_len, 36);
LAYOUT(data_len, 40);
LAYOUT(hash.rss, 44);
LAYOUT(buf_len, 54);
LAYOUT(pool, 56);
LAYOUT(next, 64);
LAYOUT(tx_offload, 72);
_Static_assert(sizeof(struct rte_mbuf) == 128, "struct rte_mbuf has changed size");

uint16_t dsys_tx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t count)
{
	return rte_eth_tx_burst(port, queue, frames, count);
}

int dsys_alloc_bulk(struct rte_mempool *pool, struct rte_mbuf **frames, unsigned int count)
{
	return rte_pktmbuf_alloc_bulk(pool, frames, count);
}

/* The bytes of each frame from an offset on, by reference, behind an empty buffer. NULL: the pool has too few buffers,
 * or there are more frames than in a burst. */
struct rte_mbuf *dsys_chain(struct rte_mempool *pool, struct rte_mbuf *const *frames, uint16_t count, uint16_t from)
{
	struct rte_mbuf *buffers[33], *head;
	uint16_t i;

	if (count >= RTE_DIM(buffers) || rte_pktmbuf_alloc_bulk(pool, buffers, count + 1) != 0)
		return NULL;
	head = buffers[0];
	head->nb_segs = count + 1;
	for (i = 0; i < count; i++) {
		rte_pktmbuf_attach(buffers[i + 1], frames[i]);
		rte_pktmbuf_adj(buffers[i + 1], from);
		buffers[i]->next = buffers[i + 1];
		head->pkt_len += buffers[i + 1]->data_len;
	}
	return head;
}

/* Whether the device can send a frame as it is described. Changes its headers to what the driver expects. */
int dsys_prepare(uint16_t port, uint16_t queue, struct rte_mbuf *frame)
{
	return rte_eth_tx_prepare(port, queue, &frame, 1) == 1;
}

void dsys_free(struct rte_mbuf *frame)
{
	rte_pktmbuf_free(frame);
}

unsigned int dsys_lcore_id(void)
{
	return rte_lcore_id();
}

static pthread_key_t registered;
static pthread_once_t registered_once = PTHREAD_ONCE_INIT;
static int registered_key_errno;
static int lcores_exhausted;

static void leave_thread(void *unused)
{
	(void)unused;
	rte_thread_unregister();
}

static void make_registered_key(void)
{
	registered_key_errno = pthread_key_create(&registered, leave_thread);
}

/* Gives the calling thread an lcore id for as long as it lives; the key's destructor gives it back. */
int dsys_enter_thread(void)
{
	if (rte_lcore_id() != LCORE_ID_ANY)
		return 0;
	pthread_once(&registered_once, make_registered_key);
	if (registered_key_errno != 0)
		return registered_key_errno;
	if (rte_thread_register() != 0) {
		__atomic_store_n(&lcores_exhausted, 1, __ATOMIC_RELAXED);
		return rte_errno;
	}
	return pthread_setspecific(registered, &registered);
}

/* Once an attempt has failed, polling threads stop asking: each attempt takes a lock and logs a line. */
static void enter_thread_while_lcores_last(void)
{
	if (!__atomic_load_n(&lcores_exhausted, __ATOMIC_RELAXED))
		(void)dsys_enter_thread();
}

/* A thread that polls must have an lcore id, else every mempool access misses its cache. Checked on each burst:
 * one thread-local load. A registration that fails leaves the burst correct, only slower. */
uint16_t dsys_rx_burst(uint16_t port, uint16_t queue, struct rte_mbuf **frames, uint16_t room)
{
	if (unlikely(rte_lcore_id() == LCORE_ID_ANY))
		enter_thread_while_lcores_last();
	return rte_eth_rx_burst(port, queue, frames, room);
}

int dsys_errno(void)
{
	return rte_errno;
}

/* 1 up, 0 down, negative when the device cannot say. The speed is in Mbit/s; 0: unknown. */
int dsys_link(uint16_t port, uint32_t *speed_mbps)
{
	struct rte_eth_link link = { .link_status = RTE_ETH_LINK_DOWN };
	int failed = rte_eth_link_get_nowait(port, &link);

	*speed_mbps = failed != 0 || link.link_speed == RTE_ETH_SPEED_NUM_UNKNOWN ? 0 : link.link_speed;
	return failed != 0 ? failed : link.link_status == RTE_ETH_LINK_UP;
}

/* Entry i of the device's table between hashes and queues leads to queue i modulo queues. 0, or a negative error. */
int dsys_spread_evenly(uint16_t port, uint16_t entries, uint16_t queues)
{
	struct rte_eth_rss_reta_entry64 table[RTE_ETH_RSS_RETA_SIZE_512 / RTE_ETH_RETA_GROUP_SIZE] = { 0 };
	uint16_t entry;

	if (entries > RTE_ETH_RSS_RETA_SIZE_512 || queues == 0)
		return -EINVAL;
	for (entry = 0; entry < entries; entry++) {
		table[entry / RTE_ETH_RETA_GROUP_SIZE].mask |= UINT64_C(1) << entry % RTE_ETH_RETA_GROUP_SIZE;
		table[entry / RTE_ETH_RETA_GROUP_SIZE].reta[entry % RTE_ETH_RETA_GROUP_SIZE] = entry % queues;
	}
	return rte_eth_dev_rss_reta_update(port, table, entries);
}

/* As rte_pktmbuf_pool_create, but with a say in how frames lie in ordinary pages. DPDK puts each frame at the start
 * of a page there, so that all of them compete for the same few cache sets: 20 ns a received frame against 6. It does
 * so for cards with their own DMA, which cannot use ordinary pages anyway. Here frames are packed, unless each
 * shall have a page. */
struct rte_mempool *dsys_pool_create(const char *name, const struct dsys_pool_shape *shape)
{
	struct rte_pktmbuf_pool_private private = { .mbuf_data_room_size = shape->room_bytes };
	unsigned int size = sizeof(struct rte_mbuf) + shape->room_bytes, flags = 0;
	struct rte_mempool *pool;
	int failed;

	if (!rte_eal_has_hugepages())
		flags = shape->page_each ? RTE_MEMPOOL_F_NO_SPREAD : RTE_MEMPOOL_F_NO_IOVA_CONTIG;
	pool = rte_mempool_create_empty(name, shape->frames, size, shape->cache_frames, sizeof(private),
			shape->numa_node, flags);
	if (pool == NULL)
		return NULL;
	failed = rte_mempool_set_ops_byname(pool, rte_mbuf_best_mempool_ops(), NULL);
	if (failed == 0) {
		rte_pktmbuf_pool_init(pool, &private);
		failed = rte_mempool_populate_default(pool);
	}
	if (failed < 0) {
		rte_mempool_free(pool);
		rte_errno = -failed;
		return NULL;
	}
	rte_mempool_obj_iter(pool, rte_pktmbuf_init, NULL);
	return pool;
}

unsigned int dsys_ring_drain(struct rte_ring *ring, struct rte_mbuf **frames, unsigned int room)
{
	return rte_ring_dequeue_burst(ring, (void **)frames, room, NULL);
}

uint64_t dsys_pack_tx_offload(uint64_t l2_bytes, uint64_t l3_bytes, uint64_t l4_bytes, uint64_t segment_bytes)
{
	struct rte_mbuf frame = { .tx_offload = 0 };

	frame.l2_len = l2_bytes;
	frame.l3_len = l3_bytes;
	frame.l4_len = l4_bytes;
	frame.tso_segsz = segment_bytes;
	return frame.tx_offload;
}

/* ironwarp: iWARP (RDMA over TCP/IP) in user space, for programs in C.
 *
 * Made from stack/capi/src by cbindgen; docs/embedding.md is the guide.
 *
 * Calls answer 0 or a count, or a negative IW_E_*: iw_error_text has a text for each, iw_last_error the last one's own
 * words. No call blocks on a peer. A handle (struct iw_stack, iw_worker, iw_ctx, iw_mr) is used by one thread at a time: a
 * second one gets IW_E_CONCURRENT_CALL, a closed handle IW_E_HANDLE. Handles of different names may be used by different threads
 * at once. "Safety" tells what the library cannot check.
 */

#ifndef IRONWARP_H
#define IRONWARP_H

#include <stddef.h>
#include <stdint.h>

// What this header describes: the upper 16 bits change with a release that programs must be compiled again for, the lower
// ones with a release that only adds something.
#define IW_ABI_VERSION (1 << 16)

// It was done.
#define IW_OK 0

// A pointer that must not be null is, or one is not aligned for what it points to.
#define IW_E_POINTER -1

// The handle is not, or no longer, one of this kind.
#define IW_E_HANDLE -2

// Another call with the same handle is not over: on another thread, or below this one.
#define IW_E_CONCURRENT_CALL -3

// The library has a fault. The object is good for nothing but being closed.
#define IW_E_INTERNAL -4

// An argument or a field is out of range; `iw_last_error` names it.
#define IW_E_VALUE -5

// The configuration cannot be used; `iw_last_error` names key, value and what is allowed.
#define IW_E_CONFIG -6

// The device, or the stack over it, could not be started.
#define IW_E_DEVICE -7

// Not in this build of the library.
#define IW_E_UNSUPPORTED -8

// No such queue pair in this context: destroyed, or another context's.
#define IW_E_NO_QP -9

// No such completion queue in this context.
#define IW_E_NO_CQ -10

// No such shared receive queue in this context.
#define IW_E_NO_SRQ -11

// No such protection domain in this stack.
#define IW_E_NO_PD -12

// A queue pair still uses the object.
#define IW_E_STILL_USED -13

// The object is in a state that does not allow the call.
#define IW_E_STATE -14

// The work queue holds as many requests as it was made for. Reap completions and post again.
#define IW_E_QUEUE_FULL -15

// Every place in the completion queue is promised to a posted request. Reap completions and post again.
#define IW_E_CQ_FULL -16

// More elements, inline bytes, private data or message bytes than fit.
#define IW_E_TOO_LONG -17

// The connection does not have the operation: `IW_EXTENSIONS_*`.
#define IW_E_NO_OPERATION -18

// As many objects exist as the configuration allows.
#define IW_E_LIMIT -19

// The core has not caught up with earlier calls. Poll its worker and call again.
#define IW_E_BUSY -20

// The worker that would carry out the call has been closed.
#define IW_E_WORKER_CLOSED -21

// The memory cannot be registered so, or has no word there for an atomic operation.
#define IW_E_MEMORY -22

// The operating system refused.
#define IW_E_SYSTEM -23

// What failed.
#define IW_LOG_ERROR 1

// And what is suspicious.
#define IW_LOG_WARN 2

// And what is worth knowing.
#define IW_LOG_INFO 3

// And what helps to find a fault. A release build has none of it.
#define IW_LOG_DEBUG 4

// The program has called `rte_eal_init` itself. The library then uses that environment, never cleans it up, and plugs
// its device into it, unless the configuration names one that is there (`port.device.dpdk`). The program closes every
// stack, context and worker before it calls `rte_eal_cleanup`.
#define IW_CALLER_OWNS_EAL 1

// Two stacks joined by DPDK's rings.
#define IW_PAIR_RING 1

// Two stacks joined by ordinary memory, without DPDK: for tests of a program's own logic.
#define IW_PAIR_MEMORY 2

// Atomic operations and Immediate Data as the configuration says (`rdmap.extensions`).
#define IW_EXTENSIONS_DEFAULT 0

// None.
#define IW_EXTENSIONS_OFF 1

// Those of RFC 7306.
#define IW_EXTENSIONS_RFC7306 2

// And Swap, as draft -03 has it.
#define IW_EXTENSIONS_DRAFT03 3

// As draft -01 has it.
#define IW_EXTENSIONS_DRAFT01 4

// A peer asks for a connection: `request`, `local`, `remote`, private data; `negotiated.revision` is the revision of MPA that it
// speaks.
#define IW_EVENT_CONNECT_REQUEST 1

// The connection is up: `qp`, `negotiated`, and on the connecting side private data.
#define IW_EVENT_ESTABLISHED 2

// The peer refused: `qp`, private data.
#define IW_EVENT_REJECTED 3

// The connection did not come about: `qp`, `reason` is an IW_CONNECT_FAILURE_*.
#define IW_EVENT_CONNECT_FAILED 4

// A Terminate message was sent or received: `qp`, `terminate`. The end of the connection follows.
#define IW_EVENT_TERMINATED 5

// The connection has ended, and every request has its completion: `qp`, `reason` is an IW_DISCONNECT_*.
#define IW_EVENT_DISCONNECTED 6

// The peer's first message has come to the accepting side: `qp`.
#define IW_EVENT_COMM_EST 7

// A request of ours could not be carried out, and the connection ends with it: `qp`.
#define IW_EVENT_QP_FATAL 8

// A message came for a shared receive and its completion queue was full; its connection ends: `cq`, `qp`.
#define IW_EVENT_CQ_ERROR 9

// Fewer receives are left than asked for with `iw_srq_arm`: `srq`.
#define IW_EVENT_SRQ_LIMIT_REACHED 10

// A queue pair that has ended takes no more of its shared receives: `qp`.
#define IW_EVENT_LAST_WQE_REACHED 11

// The device of `port` has lost its link (`reason` 0), or has it again (1).
#define IW_EVENT_LINK 12

// A listening address could not be taken: `local`.
#define IW_EVENT_LISTEN_FAILED 13

// The peer has no atomic operations, and ended the connection over one: `qp`, `remote` without a port.
#define IW_EVENT_PEER_LACKS_ATOMICS 14

// Something that this version of the header has no number for.
#define IW_EVENT_OTHER 15

// Nobody answers for the address, or no route leads there.
#define IW_CONNECT_FAILURE_UNREACHABLE 1

// The peer's host refused.
#define IW_CONNECT_FAILURE_REFUSED 2

// No answer in time.
#define IW_CONNECT_FAILURE_TIMED_OUT 3

// The peer closed or reset the connection during start-up.
#define IW_CONNECT_FAILURE_CLOSED 4

// The peer's start-up frame breaks RFC 5044, or asks for what we do not have.
#define IW_CONNECT_FAILURE_PROTOCOL 5

// No local port, connection or buffer was free.
#define IW_CONNECT_FAILURE_NO_RESOURCES 6

// A Terminate ended it.
#define IW_CONNECT_FAILURE_TERMINATED 7

// Something else ended it.
#define IW_CONNECT_FAILURE_OTHER 8

// Both sides closed in order.
#define IW_DISCONNECT_CLOSED 1

// A Terminate ended it.
#define IW_DISCONNECT_TERMINATED 2

// An error was found here that no Terminate could tell the peer of: `terminate` names it.
#define IW_DISCONNECT_LOCAL_ERROR 3

// The peer reset it.
#define IW_DISCONNECT_RESET 4

// The peer no longer acknowledges.
#define IW_DISCONNECT_TIMED_OUT 5

// Something else ended it.
#define IW_DISCONNECT_OTHER 6

// Receives and answers to Reads may be placed here.
#define IW_ACCESS_LOCAL_WRITE 1

// The peer may read it.
#define IW_ACCESS_REMOTE_READ 2

// The peer may write it. Asks for IW_ACCESS_LOCAL_WRITE too.
#define IW_ACCESS_REMOTE_WRITE 4

// The peer may run atomic operations on it. Asks for IW_ACCESS_LOCAL_WRITE too.
#define IW_ACCESS_REMOTE_ATOMIC 8

// Memory windows and fast regions may be bound to it, with any rights; such as write ask for IW_ACCESS_LOCAL_WRITE here.
#define IW_ACCESS_BIND 16

// A Send of `sges`, or of inline data.
#define IW_WR_SEND 0

// An RDMA Write of `sges`, or of inline data, to `remote_offset` of `remote_stag`.
#define IW_WR_WRITE 1

// An RDMA Read from there into the one element.
#define IW_WR_READ 2

// Immediate Data: the eight octets reach the peer in the completion of its oldest receive. Needs IW_EXTENSIONS_*.
#define IW_WR_IMMEDIATE 3

// An RDMA Write and then Immediate Data, both or neither.
#define IW_WR_WRITE_IMMEDIATE 4

// Adds `compare_add` to the peer's 8-byte word, field by field as `compare_add_mask` says (0: one field). What it was lands
// in the one element, of 8 bytes. Needs IW_EXTENSIONS_*, and so do the next two.
#define IW_WR_FETCH_ADD 5

// Replaces the bits of `swap_mask` by those of `swap` where the word is `compare_add` in the bits of `compare_add_mask`.
#define IW_WR_CMP_SWAP 6

// Replaces the word by `swap`.
#define IW_WR_SWAP 7

// Ends the steering tag `invalidate_stag`, one of ours: a region's for good, a window's or fast region's until it is bound
// again. It does not wait for earlier requests, which may still need the tag, without IW_SEND_LOCAL_FENCE.
#define IW_WR_INVALIDATE 8

// Binds `window` to the one element, a piece of memory that has IW_ACCESS_BIND: from now on the window's tag is good for
// the peer of this queue pair, at the piece's own addresses, as `access` says. Later requests find it bound.
#define IW_WR_BIND 9

// Makes `fast_mr` a region of the one element, as above: its tag is good here and, as `access` says, at the peer, for the
// whole protection domain or with IW_SEND_STREAM_SCOPED for this queue pair alone.
#define IW_WR_FAST_REGISTER 10

// Asks whether the peer has atomic operations, by adding 0 to a word of its, which stays as it is. A peer that has none ends
// the connection: IW_EVENT_PEER_LACKS_ATOMICS.
#define IW_WR_PROBE_ATOMICS 11

// Completes with an entry when it succeeds. What fails always does.
#define IW_SEND_SIGNALED 1

// Raises an event at a peer that waits for solicited ones only.
#define IW_SEND_SOLICITED 2

// Waits for every earlier Read and atomic operation of this queue.
#define IW_SEND_FENCE 4

// Waits for every earlier request of this queue.
#define IW_SEND_LOCAL_FENCE 8

// The bytes are `inline_data`, and are copied now.
#define IW_SEND_INLINE 16

// A Send ends `invalidate_stag` at the peer; a Read ends the tag of its own element.
#define IW_SEND_INVALIDATE 32

// A fast region is for this queue pair alone, and its peer may end the tag by a Send that invalidates it.
#define IW_SEND_STREAM_SCOPED 64

// It was carried out.
#define IW_WC_SUCCESS 0

// The connection ended first; how much of it the peer saw is unknown.
#define IW_WC_WR_FLUSH_ERR 1

// The message is longer than its buffer, or than a message may be.
#define IW_WC_LOC_LEN_ERR 2

// An element names memory that may not be used so.
#define IW_WC_LOC_PROT_ERR 3

// The peer's answer is not the answer to the request.
#define IW_WC_BAD_RESP_ERR 4

// The request cannot be carried out on this queue pair.
#define IW_WC_LOC_QP_OP_ERR 5

// Something else went wrong.
#define IW_WC_GENERAL_ERR 6

// A window or fast region cannot be bound so: it is bound already or has been destroyed, the rights are none that it or the
// memory gives, or the piece is not within memory of its protection domain.
#define IW_WC_MW_BIND_ERR 7

// A Send of any kind.
#define IW_WC_SEND 0

// An RDMA Write.
#define IW_WC_WRITE 1

// An RDMA Read.
#define IW_WC_READ 2

// A receive, by a Send.
#define IW_WC_RECV 3

// A receive that Immediate Data took: nothing is in its memory, the eight octets are in `immediate`.
#define IW_WC_RECV_IMMEDIATE 4

// Immediate Data of ours.
#define IW_WC_IMMEDIATE 5

// An atomic operation.
#define IW_WC_ATOMIC 6

// The end of a steering tag of ours.
#define IW_WC_INVALIDATE 7

// A window's binding.
#define IW_WC_BIND 8

// A fast registration.
#define IW_WC_FAST_REGISTER 9

// The Send that was received asked for an event.
#define IW_WC_FLAG_SOLICITED 1

// The Send that was received ended the steering tag in `invalidated_stag`.
#define IW_WC_FLAG_INVALIDATED 2

// An atomic operation of `iw_atomic`: the word as it was is in `immediate`.
#define IW_WC_FLAG_LOCAL_ATOMIC 4

// Made, not connected.
#define IW_QP_IDLE 0

// Being connected.
#define IW_QP_CONNECTING 1

// Connected.
#define IW_QP_ESTABLISHED 2

// Closing: what was posted is still sent.
#define IW_QP_DRAINING 3

// Ended.
#define IW_QP_ERROR 4

// One application thread's side of a stack: used by one thread at a time, whichever.
struct iw_ctx;

// A fast region: registered memory whose place and tag are given by IW_WR_FAST_REGISTER, in the order of the send queue.
// Any thread may use the handle, one at a time; it outlives the context that made it.
struct iw_fast_mr;

// Registered memory. Any thread may use the handle, one at a time; it outlives the context that made it.
struct iw_mr;

// A memory window: a tag that IW_WR_BIND lends to the peer of one queue pair. Any thread may use the handle, one at a time;
// it outlives the context that made it.
struct iw_mw;

// A stack: one device, its addresses, and as many cores as the configuration says.
struct iw_stack;

// One core of a stack.
struct iw_worker;

// Takes a line of the log: the `user` pointer that was given beside the function, an `IW_LOG_*`, a text that is good
// during the call. May be called on any thread that calls the library, several at once. It must not call the library
// with a handle of the call that it is called from, which is refused with IW_E_CONCURRENT_CALL, and must return.
typedef void (*iw_log_fn)(void *user, uint32_t level, const char *text);

// What one poll did.
struct iw_poll_result {
    // Frames received and sent, doorbells and messages handled. 0 when there was nothing to do.
    uint64_t work;
    // Nanoseconds until the next timer is due: until then there is nothing to do unless a frame, a request or another
    // worker's message comes. UINT64_MAX when no timer is armed.
    uint64_t idle_ns;
};

// An IP address and a TCP port.
struct iw_addr {
    // The address in network order: 4 bytes, or 16.
    uint8_t ip[16];
    // The zone of a link-local IPv6 address, else 0.
    uint32_t scope;
    // The port, in the machine's order.
    uint16_t port;
    // 4 or 6; 0 where there is no address.
    uint16_t family;
};

// How to connect or to accept. `iw_conn_params_init` fills it in.
struct iw_conn_params {
    // sizeof(struct iw_conn_params).
    uint32_t size;
    // Bytes of private data; `iw_limits.private_data_bytes` always fit.
    uint32_t private_data_bytes;
    // Private data for the peer's application.
    const uint8_t *private_data;
    // IW_EXTENSIONS_*: what the connection carries beside Send, Write and Read. Nothing on the wire asks the peer; both
    // programs must want the same.
    uint32_t extensions;
    // To connect with: the revision of MPA to begin with, 1 or 2; 0 as the configuration says. Not used to accept.
    uint32_t revision;
    // The numbers of Reads to offer, at most those of the queue pair; negative: those of the queue pair.
    int32_t ird;
    // As before, the other way.
    int32_t ord;
};

// A queue pair. 0 is none.
struct iw_qp {
    // The library's.
    uint64_t id;
};

// A peer that waits for an answer, from IW_EVENT_CONNECT_REQUEST. One that gets none is closed after
// `mpa.startup_timeout_ms`.
struct iw_request {
    // The library's.
    uint64_t id[2];
};

// A protection domain: a queue pair reaches the memory of its own domain only. Good in every context of its stack.
struct iw_pd {
    // The library's.
    uint64_t id;
};

// How many of everything there may be.
struct iw_limits {
    // Cores that carry connections.
    uint32_t cores;
    // Queue pairs a core.
    uint32_t queue_pairs;
    // Completion queues a core.
    uint32_t completion_queues;
    // Shared receive queues a core.
    uint32_t shared_receive_queues;
    // Memory regions in the stack.
    uint32_t regions;
    // Contexts.
    uint32_t contexts;
    // Requests in a send or receive queue.
    uint32_t wq_depth;
    // Places in a completion queue.
    uint32_t cq_depth;
    // Gather or scatter elements in a request.
    uint32_t max_sge;
    // Inline bytes in a request.
    uint32_t inline_bytes;
    // Bytes in a message.
    uint32_t message_bytes;
    // Reads and atomic operations outstanding in either direction of a queue pair.
    uint32_t read_depth;
    // Private data bytes that a connection can be begun or answered with, whatever revision of MPA the peer speaks.
    uint32_t private_data_bytes;
};

// How far a context has come with `iw_drain`.
struct iw_drain_progress {
    // Queue pairs whose connections have not ended yet.
    uint32_t open;
    // Queue pairs that this call destroyed, because the deadline is past.
    uint32_t aborted;
};

// A completion queue. 0 is none.
struct iw_cq {
    // The library's.
    uint64_t id;
};

// A shared receive queue. 0 is none.
struct iw_srq {
    // The library's.
    uint64_t id;
};

// What start-up settled.
struct iw_negotiated {
    // The revision of MPA that was spoken.
    uint16_t revision;
    // Reads that the peer may have outstanding here.
    uint16_t ird;
    // Reads that we may have outstanding at the peer.
    uint16_t ord;
    // Not used.
    uint16_t reserved;
};

// The error that a Terminate names (RFC 5040 s4.8, RFC 5041 s8.2, RFC 5044 s8).
struct iw_terminate {
    // Who found it: 0 RDMAP, 1 DDP, 2 MPA.
    uint8_t layer;
    // Its type, within the layer.
    uint8_t etype;
    // Its code, within the type.
    uint8_t code;
    // 1: we sent it.
    uint8_t sent;
};

// An event. The kind determines the fields that are set; others are 0.
struct iw_event {
    // IW_EVENT_*.
    uint32_t kind;
    // IW_CONNECT_FAILURE_*, IW_DISCONNECT_*, or whether there is a link.
    uint32_t reason;
    // The queue pair.
    struct iw_qp qp;
    // The completion queue.
    struct iw_cq cq;
    // The shared receive queue.
    struct iw_srq srq;
    // The peer that waits for an answer.
    struct iw_request request;
    // Our address.
    struct iw_addr local;
    // The peer's.
    struct iw_addr remote;
    // What start-up settled.
    struct iw_negotiated negotiated;
    // An error.
    struct iw_terminate terminate;
    // The port, from 0: 0 where there is one.
    uint32_t port;
    // Bytes of private data.
    uint32_t private_data_bytes;
    // What the far application says.
    uint8_t private_data[512];
};

// How registered memory is named.
struct iw_mr_info {
    // The tagged offset of its first byte, in work requests and at the peer: the address of that byte.
    uint64_t offset;
    // Bytes.
    uint64_t length;
    // The steering tag: `lkey` of an element, and the number that the peer gets.
    uint32_t stag;
    // IW_ACCESS_*.
    uint32_t access;
};

// An atomic operation, with the operands of the request that asks a peer for it.
struct iw_atomic_op {
    // IW_WR_FETCH_ADD, IW_WR_CMP_SWAP or IW_WR_SWAP.
    uint32_t opcode;
    // Not used.
    uint32_t reserved;
    // As in `iw_send_wr`.
    uint64_t compare_add;
    // As above.
    uint64_t compare_add_mask;
    // As above.
    uint64_t swap;
    // As above.
    uint64_t swap_mask;
};

// The steering tags of a memory window or fast region.
struct iw_stag_info {
    // The tag of the binding that was posted last, whatever has become of it; 0: none was.
    uint32_t stag;
    // The tag that the next binding will have.
    uint32_t next_stag;
};

// A piece of registered memory.
struct iw_sge {
    // The tagged offset of its first byte, which is its address.
    uint64_t addr;
    // Bytes.
    uint32_t length;
    // The steering tag of its memory.
    uint32_t lkey;
};

// A request for the send queue. What its kind does not use is not looked at.
struct iw_send_wr {
    // Comes back in the completion.
    uint64_t wr_id;
    // IW_WR_*.
    uint32_t opcode;
    // IW_SEND_*.
    uint32_t flags;
    // Elements; copied by the call, the memory they name stays as it is until the completion.
    const struct iw_sge *sges;
    // Their number.
    uint32_t sge_count;
    // The peer's steering tag.
    uint32_t remote_stag;
    // The offset within its memory.
    uint64_t remote_offset;
    // With IW_SEND_INLINE, the bytes.
    const uint8_t *inline_data;
    // And their number.
    uint32_t inline_bytes;
    // The tag to end.
    uint32_t invalidate_stag;
    // The octets of Immediate Data.
    uint8_t immediate[8];
    // Operands of the atomic operations.
    uint64_t compare_add;
    // As above.
    uint64_t compare_add_mask;
    // As above.
    uint64_t swap;
    // As above.
    uint64_t swap_mask;
    // What IW_WR_BIND binds, with the tag that its `iw_stag_info.next_stag` says.
    struct iw_mw *window;
    // What IW_WR_FAST_REGISTER registers, alike.
    struct iw_fast_mr *fast_mr;
    // What the peer may do by either's tag, and we by a fast region's: IW_ACCESS_*.
    uint32_t access;
    // Not used.
    uint32_t reserved;
};

// A request for a receive queue.
struct iw_recv_wr {
    // Comes back in the completion.
    uint64_t wr_id;
    // Elements; copied by the call, the memory they name is not touched until the completion.
    const struct iw_sge *sges;
    // Their number.
    uint32_t sge_count;
    // Not used.
    uint32_t reserved;
};

// The end of one work request.
struct iw_wc {
    // The number that was posted.
    uint64_t wr_id;
    // The queue pair's number (`iw_qp_info`); with IW_WC_FLAG_LOCAL_ATOMIC 0.
    uint32_t qp_num;
    // Bytes of the message, where the status is IW_WC_SUCCESS.
    uint32_t byte_len;
    // What became of it: IW_WC_SUCCESS to IW_WC_MW_BIND_ERR.
    uint32_t status;
    // What it was: IW_WC_SEND to IW_WC_FAST_REGISTER.
    uint32_t opcode;
    // IW_WC_FLAG_SOLICITED, IW_WC_FLAG_INVALIDATED, IW_WC_FLAG_LOCAL_ATOMIC.
    uint32_t flags;
    // With IW_WC_FLAG_INVALIDATED, the steering tag.
    uint32_t invalidated_stag;
    // With IW_WC_RECV_IMMEDIATE, the eight octets; with IW_WC_FLAG_LOCAL_ATOMIC, the bytes of a uint64_t, to be copied into one.
    uint8_t immediate[8];
};

// A completion queue as it is now.
struct iw_cq_info {
    // Places for work requests that were posted and not reaped. A larger depth that was asked for shows once it holds.
    uint32_t depth;
    // Places promised to work requests: posted and not reaped, and not known to have ended without an entry.
    uint32_t reserved_cqes;
    // Uses by queue pairs: one that sends and receives into it counts twice.
    uint32_t users;
};

// A shared receive queue as it is now.
struct iw_srq_info {
    // Receives that fit, on all cores together, at least as many as were asked for.
    uint32_t depth;
    // Receives posted and not yet taken by a message.
    uint32_t posted;
    // Elements in a receive.
    uint32_t max_sge;
    // Queue pairs that take receives from it.
    uint32_t users;
};

// What a new queue pair is made for. `iw_qp_attr_init` fills it in.
struct iw_qp_attr {
    // sizeof(struct iw_qp_attr).
    uint32_t size;
    // The core that it connects from; negative: the one with the fewest queue pairs. One that accepts lives where the
    // connection came to.
    int32_t core;
    // Where sends complete.
    struct iw_cq send_cq;
    // Where receives complete.
    struct iw_cq recv_cq;
    // Where receives come from; 0: a queue of its own.
    struct iw_srq srq;
    // Send requests outstanding.
    uint32_t send_depth;
    // Receives outstanding.
    uint32_t recv_depth;
    // Elements in a request, 1 to 16.
    uint32_t max_sge;
    // Inline bytes in a request, 0 to 256.
    uint32_t inline_bytes;
    // Reads that the peer may have outstanding here (IRD).
    uint16_t ird;
    // Reads and atomic operations that we may have outstanding at the peer (ORD).
    uint16_t ord;
    // Not 0: complete Sends and Writes when their bytes are copied, not when the peer has acknowledged them.
    uint32_t complete_on_copy;
};

// A queue pair as it is now.
struct iw_qp_info {
    // The number that completions carry.
    uint32_t num;
    // IW_QP_IDLE to IW_QP_ERROR.
    uint32_t state;
    // Send requests that fit, at least as many as were asked for.
    uint32_t send_depth;
    // Receives that fit; 0 with a shared queue.
    uint32_t recv_depth;
    // Send requests posted and not yet completed by the core.
    uint32_t sends_outstanding;
    // Receives posted and not yet completed by the core.
    uint32_t receives_outstanding;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// The `IW_ABI_VERSION` of the library that runs. A program goes on if the upper 16 bits are those of its header and the
// lower ones no less. Any thread.
uint32_t iw_abi_version(void);

// The library's version as text, for people. Any thread; never freed.
const char *iw_version(void);

// Nanoseconds of the system's monotonic clock (`CLOCK_MONOTONIC`), which deadlines are given in. Any thread.
uint64_t iw_now_ns(void);

// A text for an error number. Any thread; never freed, never null.
const char *iw_error_text(int32_t code);

// What the last call that failed on this thread has to say, as one line. Good until the thread's next call that fails;
// never null.
const char *iw_last_error(void);

// Hands the library's log to `function`, lines of `level` and worse; null ends that. Replaces what an earlier call set:
// a call of the former function may still be under way on another thread. DPDK's own log is DPDK's, see `rte_log`. Any
// thread. IW_E_STATE where the process has a log of another Rust library.
//
// # Safety
// `function` may be called with `user` from any thread until it has been replaced.
int32_t iw_set_log(iw_log_fn function,
                   void *user,
                   uint32_t level);

// Reads one counter of a stack, all cores together, by its name, as `iwarp-top` shows it. The control thread's call.
//
// # Safety
// `stack` is null or a handle that this library gave out; `name` is null or a NUL-terminated text; `value` is null or good
// for one number.
int32_t iw_stack_counter(const struct iw_stack *stack,
                         const char *name,
                         uint64_t *value);

// The number of counters.
//
// # Safety
// `stack` is null or a handle that this library gave out.
int32_t iw_stack_counters(const struct iw_stack *stack);

// The name and value of a counter by its number, 0 to `iw_stack_counters`. `name` has room for `size` bytes, of which 48
// are always enough.
//
// # Safety
// `stack` is null or a handle that this library gave out; `name` is null or good for `size` bytes, `value` null or good for
// one number.
int32_t iw_stack_counter_at(const struct iw_stack *stack,
                            uint32_t number,
                            char *name,
                            uintptr_t size,
                            uint64_t *value);

// Opens a stack from a configuration in TOML, as `configs/memif-server.toml` explains it. The control thread's call: it
// opens the device and takes all memory, which may take seconds.
//
// # Safety
// `toml` is null or a NUL-terminated text; `out` is null or good for one pointer.
int32_t iw_stack_open(const char *toml,
                      uint32_t flags,
                      struct iw_stack **out);

// As `iw_stack_open`, from a file.
//
// # Safety
// As for `iw_stack_open`.
int32_t iw_stack_open_file(const char *path, uint32_t flags, struct iw_stack **out);

// Opens two stacks in this process that are joined back to back. Both need the same `port` and `core` tables.
//
// # Safety
// As for `iw_stack_open`, for each text and pointer.
int32_t iw_stack_open_pair(const char *first_toml,
                           const char *second_toml,
                           uint32_t kind,
                           uint32_t flags,
                           struct iw_stack **first_out,
                           struct iw_stack **second_out);

// Closes the handle. Contexts and workers that came of it go on, and the device stays open until the last worker is
// closed; workers that were never taken are closed with it.
//
// # Safety
// `stack` is null or a handle that this library gave out.
int32_t iw_stack_close(struct iw_stack *stack);

// The number of its cores: workers are numbered from 0.
//
// # Safety
// As for `iw_stack_close`.
int32_t iw_stack_cores(const struct iw_stack *stack);

// Cleans up the DPDK that the library has started, once the last stack is closed; no stack can be opened over a device
// afterwards. At the end of a program that does not own DPDK itself.
int32_t iw_dpdk_cleanup(void);

// Takes the worker of one core, each once. It may be polled by any thread, by one at a time.
//
// # Safety
// `stack` is null or a handle that this library gave out; `out` is null or good for one pointer.
int32_t iw_worker_take(struct iw_stack *stack, uint32_t core, struct iw_worker **out);

// Runs one iteration of a worker's loop: at most `budget` bursts of frames in, then all that follows from them. Never
// blocks, never allocates, never calls the system, save to wake somebody who waits at a descriptor. Answers how much
// there was to do. `polled` may be null. A program that lets the workers of one stack rest until their timers are due
// polls all of them once more when one has had work: they hand frames to each other.
//
// # Safety
// `worker` is null or a handle that this library gave out; `polled` is null or good for one value.
int32_t iw_worker_poll(struct iw_worker *worker,
                       uint32_t budget,
                       struct iw_poll_result *polled);

// Runs a worker on a thread of the library's until `iw_worker_stop`, pinned to `processor` unless that is negative. Who
// polls it meanwhile gets IW_E_STATE.
//
// # Safety
// `worker` is null or a handle that this library gave out.
int32_t iw_worker_start(struct iw_worker *worker,
                        int32_t processor);

// Ends the thread that `iw_worker_start` began; the worker can be polled again. Waits for the iteration under way.
//
// # Safety
// As for `iw_worker_start`.
int32_t iw_worker_stop(struct iw_worker *worker);

// Whether the device has its link, of several whether any has: 1 or 0. May ask the kernel.
//
// # Safety
// As for `iw_worker_start`.
int32_t iw_worker_link_up(struct iw_worker *worker);

// Closes a worker: connections that live on its core end without a word, calls that need it say IW_E_WORKER_CLOSED, and
// with the last worker of a stack the device is closed. Drain the contexts first (`iw_drain`).
//
// # Safety
// As for `iw_worker_start`.
int32_t iw_worker_close(struct iw_worker *worker);

// Reads an address as `10.0.0.1:4791` or `[2001:db8::1]:4791`. Any thread.
//
// # Safety
// `text` is null or a NUL-terminated text; `out` is null or good for one address.
int32_t iw_addr_parse(const char *text_of_address, struct iw_addr *out);

// Writes an address as text into `size` bytes, of which 64 are always enough. Any thread.
//
// # Safety
// `address` is null or leads to one; `room` is null or good for `size` bytes.
int32_t iw_addr_text(const struct iw_addr *address, char *room, uintptr_t size);

// Fills in the defaults: no private data, everything else as configuration and queue pair say.
//
// # Safety
// `params` is null or good for one value.
int32_t iw_conn_params_init(struct iw_conn_params *params);

// Takes connections for an address: peers come as IW_EVENT_CONNECT_REQUEST, an address that is taken already as
// IW_EVENT_LISTEN_FAILED.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `local` is null or leads to an address.
int32_t iw_listen(struct iw_ctx *ctx,
                  const struct iw_addr *local);

// Takes no more connections for an address. Those already made stay.
//
// # Safety
// As for `iw_listen`.
int32_t iw_unlisten(struct iw_ctx *ctx, const struct iw_addr *local);

// Connects an idle queue pair: IW_EVENT_ESTABLISHED, IW_EVENT_REJECTED or IW_EVENT_CONNECT_FAILED follows. Null parameters
// are the defaults.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `remote` is null or leads to an address; `params` is null or leads
// to as many bytes as its `size` says, and its private data to as many as it says.
int32_t iw_connect(struct iw_ctx *ctx,
                   struct iw_qp qp,
                   const struct iw_addr *remote,
                   const struct iw_conn_params *params);

// Accepts a peer with an idle queue pair: IW_EVENT_ESTABLISHED or IW_EVENT_CONNECT_FAILED follows. Where the call fails the
// peer can still be answered. Null parameters are the defaults.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `request` is null or leads to a request; `params` as for
// `iw_connect`.
int32_t iw_accept(struct iw_ctx *ctx,
                  const struct iw_request *request,
                  struct iw_qp qp,
                  const struct iw_conn_params *params);

// Refuses a peer, and tells it why.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `request` is null or leads to a request; `private_data` is null or
// leads to `private_data_bytes` bytes.
int32_t iw_reject(struct iw_ctx *ctx,
                  const struct iw_request *request,
                  const uint8_t *private_data,
                  uint32_t private_data_bytes);

// Closes a connection once everything posted has been sent and acknowledged: IW_EVENT_DISCONNECTED follows. Nothing more can
// be posted from now on.
//
// # Safety
// `ctx` is null or a handle that this library gave out.
int32_t iw_disconnect(struct iw_ctx *ctx,
                      struct iw_qp qp);

// Whether the peer at an address, whatever its port, has turned out to lack atomic operations: 1 or 0. So it is from the time
// that a context of the stack has heard IW_EVENT_PEER_LACKS_ATOMICS until a connection to it has had an answer to one, or for as
// long as the configuration says (`rdmap.lacks_atomics_cache_s`).
//
// # Safety
// `ctx` is null or a handle that this library gave out; `peer` is null or leads to an address.
int32_t iw_lacks_atomics(const struct iw_ctx *ctx,
                         const struct iw_addr *peer);

// Opens a context. Allocates.
//
// # Safety
// `stack` is null or a handle that this library gave out; `out` is null or good for one pointer.
int32_t iw_ctx_open(const struct iw_stack *stack, struct iw_ctx **out);

// Closes a context with all its queue pairs and queues. What is still connected is reset: drain first (`iw_drain`). Memory
// stays registered until it is released.
//
// # Safety
// `ctx` is null or a handle that this library gave out.
int32_t iw_ctx_close(struct iw_ctx *ctx);

// Makes a protection domain. It takes no room and needs no end.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_pd_alloc(const struct iw_ctx *ctx, struct iw_pd *out);

// What the stack of a context allows.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_limits_query(const struct iw_ctx *ctx, struct iw_limits *out);

// One step of the orderly end: closes every connection of the context as `iw_disconnect` does, and once the deadline, in
// nanoseconds of `iw_now_ns`, is past destroys the queue pairs that are not done. Never waits: call it again, polling
// workers, events and completions in between, until it answers 0, the number of connections that are still open. It does
// not end listening. `drained` may be null.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `drained` is null or good for one value.
int32_t iw_drain(struct iw_ctx *ctx,
                 uint64_t deadline_ns,
                 struct iw_drain_progress *drained);

// Takes the oldest event: 1, or 0 when there is none. To be called as often as the program pleases, and
// while objects are being destroyed: their memory is freed here.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_event_poll(struct iw_ctx *ctx, struct iw_event *out);

// Registers memory of the program's own: a pool of huge pages, a mapping, its heap. It stays the program's: nothing is
// copied, and nothing is freed.
//
// From now until `iw_mr_poll_deregistered` answers 1 the bytes stay valid. The program does not touch bytes that a posted request
// may write or that a peer may write, and does not change bytes that a posted request may read, until their completion
// or the peer's word says that they are done with.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `address` is null or leads to `length` bytes for which what is said
// above holds; `out` is null or good for one pointer.
int32_t iw_mr_register(struct iw_ctx *ctx,
                       struct iw_pd pd,
                       void *address,
                       uintptr_t length,
                       uint32_t access,
                       struct iw_mr **out);

// As `iw_mr_register`, for one queue pair alone, whose peer may end the tag by a Send that invalidates it.
//
// # Safety
// As for `iw_mr_register`.
int32_t iw_mr_register_for_qp(struct iw_ctx *ctx,
                              struct iw_qp qp,
                              void *address,
                              uintptr_t length,
                              uint32_t access,
                              struct iw_mr **out);

// As `iw_mr_register`, with all words owned by one core: atomic operations on them are done there and nowhere else, instead
// of where each cache line's hash says. Spares mail between cores where the connections that use a word live on one.
//
// Bytes that are registered more than once are pinned alike each time; IW_E_MEMORY otherwise.
//
// # Safety
// As for `iw_mr_register`.
int32_t iw_mr_register_on_core(struct iw_ctx *ctx,
                               struct iw_pd pd,
                               void *address,
                               uintptr_t length,
                               uint32_t access,
                               uint32_t core,
                               struct iw_mr **out);

// Registers `length` zeroed bytes of the library's, at a multiple of 4096, and tells their address. They are freed soon
// after `iw_mr_poll_deregistered` answers 1; until then what `iw_mr_register` says of the bytes holds.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `address` and `out` are null or good for one pointer.
int32_t iw_mr_alloc(struct iw_ctx *ctx,
                    struct iw_pd pd,
                    uintptr_t length,
                    uint32_t access,
                    void **address,
                    struct iw_mr **out);

// How the memory is named. IW_E_STATE once its end has been asked for.
//
// # Safety
// `mr` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_mr_query(const struct iw_mr *mr, struct iw_mr_info *out);

// Ends the tag at once: no later message and no later request can use it. Cores may be finishing a copy: the bytes are in
// use until `iw_mr_poll_deregistered` says otherwise.
//
// # Safety
// `mr` is null or a handle that this library gave out.
int32_t iw_mr_deregister(struct iw_mr *mr);

// Whether nobody uses the memory any more, after `iw_mr_deregister`: 1, and the handle has ended, or 0, and it is to be asked
// again when the workers have been polled once more. A worker that nobody polls does not hold it up.
//
// # Safety
// `mr` is null or a handle that this library gave out.
int32_t iw_mr_poll_deregistered(struct iw_mr *mr);

// Runs an atomic operation on the 8-byte word that lies `offset` bytes into memory of ours, atomically with those of all
// peers, as no plain access is. The memory has IW_ACCESS_LOCAL_WRITE; no connection and no extension is needed.
//
// The core that owns the word does it, so its worker is to be polled: an IW_WC_ATOMIC with IW_WC_FLAG_LOCAL_ATOMIC comes to `cq`, with
// the word as it was. Those on words of one cache line are done in the order of the calls. Memory that is released before
// completes it as IW_WC_LOC_PROT_ERR.
//
// # Safety
// `ctx` and `mr` are null or handles that this library gave out; `op` is null or leads to an operation.
int32_t iw_atomic(struct iw_ctx *ctx,
                  struct iw_cq cq,
                  uint64_t wr_id,
                  const struct iw_mr *mr,
                  uintptr_t offset,
                  const struct iw_atomic_op *op);

// The core that runs atomic operations on such a word. With `rdmap.atomic_execution = "locked"` it means nothing.
//
// # Safety
// `ctx` and `mr` are null or handles that this library gave out; `core` is null or good for one number.
int32_t iw_owner_core(struct iw_ctx *ctx,
                      const struct iw_mr *mr,
                      uintptr_t offset,
                      uint32_t *core);

// Makes a memory window, which takes the place of a region (`iw_limits.regions`).
//
// # Safety
// `ctx` is null or a handle that this library gave out; `out` is null or good for one pointer.
int32_t iw_mw_create(struct iw_ctx *ctx, struct iw_pd pd, struct iw_mw **out);

// The window's tags.
//
// # Safety
// `mw` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_mw_query(const struct iw_mw *mw, struct iw_stag_info *out);

// Ends the window's present binding at once, without a request and whatever queue pair it is for: one that has ended may
// have left it bound. A binding that waits in a send queue is not ended. Answers 1 when no core is in the middle of a copy
// by it any more, or 0: call again when the workers have been polled once more. The window can be bound again at any time.
//
// # Safety
// `mw` is null or a handle that this library gave out.
int32_t iw_mw_invalidate(struct iw_mw *mw);

// Destroys a window and ends its tag at once; a binding of it that waits in a send queue fails. Cores may be finishing a
// copy: `iw_mw_invalidate` before, or `iw_mr_poll_deregistered` of the memory beneath, tells when they have.
//
// # Safety
// `mw` is null or a handle that this library gave out.
int32_t iw_mw_destroy(struct iw_mw *mw);

// Makes a fast region, which takes the place of a region (`iw_limits.regions`).
//
// # Safety
// As for `iw_mw_create`.
int32_t iw_fast_mr_create(struct iw_ctx *ctx, struct iw_pd pd, struct iw_fast_mr **out);

// The fast region's tags.
//
// # Safety
// As for `iw_mw_query`.
int32_t iw_fast_mr_query(const struct iw_fast_mr *fast_mr, struct iw_stag_info *out);

// Ends the fast region's present registration, as `iw_mw_invalidate` does a window's binding.
//
// # Safety
// As for `iw_mw_invalidate`.
int32_t iw_fast_mr_invalidate(struct iw_fast_mr *fast_mr);

// Destroys a fast region, as `iw_mw_destroy` does a window.
//
// # Safety
// As for `iw_mw_destroy`.
int32_t iw_fast_mr_destroy(struct iw_fast_mr *fast_mr);

// Posts requests to a send queue in order. Where one is refused, those before it are posted and it and the rest are not:
// `posted`, which may be null, tells how many.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `wrs` is null or leads to `count` requests, their pointers to as much
// as they say, and their handles are as `ctx` is; `posted` is null or good for one number.
int32_t iw_post_send(struct iw_ctx *ctx,
                     struct iw_qp qp,
                     const struct iw_send_wr *wrs,
                     uint32_t count,
                     uint32_t *posted);

// Posts receives in order, as `iw_post_send` posts sends.
//
// # Safety
// As for `iw_post_send`.
int32_t iw_post_recv(struct iw_ctx *ctx,
                     struct iw_qp qp,
                     const struct iw_recv_wr *wrs,
                     uint32_t count,
                     uint32_t *posted);

// Posts receives to a shared queue in order, as `iw_post_send` posts sends.
//
// # Safety
// As for `iw_post_send`.
int32_t iw_srq_post_recv(struct iw_ctx *ctx,
                         struct iw_srq srq,
                         const struct iw_recv_wr *wrs,
                         uint32_t count,
                         uint32_t *posted);

// Makes a completion queue with places for `depth` requests that were posted and not reaped. Allocates.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_cq_create(struct iw_ctx *ctx, uint32_t depth, struct iw_cq *out);

// Gives a completion queue another depth, with work outstanding. A larger one holds once the cores have heard of it.
//
// # Safety
// `ctx` is null or a handle that this library gave out.
int32_t iw_cq_resize(struct iw_ctx *ctx,
                     struct iw_cq cq,
                     uint32_t depth);

// Moves up to `count` completions into `wcs`, oldest first per queue pair, and answers how many.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `wcs` is null or good for `count` values.
int32_t iw_cq_poll(struct iw_ctx *ctx, struct iw_cq cq, struct iw_wc *wcs, uint32_t count);

// Asks for one event at the queue's descriptor with its next completion, or its next solicited or failed one. Arm, then
// poll once more: earlier completions raise no event.
//
// # Safety
// `ctx` is null or a handle that this library gave out.
int32_t iw_cq_arm(struct iw_ctx *ctx,
                  struct iw_cq cq,
                  int32_t solicited_only);

// The queue's descriptor, an eventfd that becomes readable once for each arming: read its eight bytes. It belongs to the
// queue; do not close it. `fd` may then be waited for by any thread.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `fd` is null or good for one value.
int32_t iw_cq_fd(const struct iw_ctx *ctx,
                 struct iw_cq cq,
                 int32_t *fd);

// A completion queue as it is now.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_cq_query(const struct iw_ctx *ctx, struct iw_cq cq, struct iw_cq_info *out);

// Destroys a completion queue that no queue pair uses any more; IW_E_STILL_USED otherwise. A queue pair that was destroyed
// uses it until the core has given it up, of which `iw_event_poll` hears: poll workers and events, and call again.
//
// # Safety
// `ctx` is null or a handle that this library gave out.
int32_t iw_cq_destroy(struct iw_ctx *ctx,
                      struct iw_cq cq);

// Makes a shared receive queue for `depth` receives a core of at most `max_sge` elements. Allocates.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_srq_create(struct iw_ctx *ctx,
                      struct iw_pd pd,
                      uint32_t depth,
                      uint32_t max_sge,
                      struct iw_srq *out);

// Asks for one IW_EVENT_SRQ_LIMIT_REACHED when fewer than `limit` receives are left on a core. 0 asks for none.
//
// # Safety
// `ctx` is null or a handle that this library gave out.
int32_t iw_srq_arm(struct iw_ctx *ctx,
                   struct iw_srq srq,
                   uint32_t limit);

// A shared receive queue as it is now.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_srq_query(struct iw_ctx *ctx, struct iw_srq srq, struct iw_srq_info *out);

// Destroys a shared receive queue, as `iw_cq_destroy` does a completion queue. Receives that are posted to it are forgotten.
//
// # Safety
// `ctx` is null or a handle that this library gave out.
int32_t iw_srq_destroy(struct iw_ctx *ctx,
                       struct iw_srq srq);

// Fills in what most queue pairs want: 128 sends, 128 receives, 16 Reads each way, everything completing in `cq`.
//
// # Safety
// `attr` is null or good for one value.
int32_t iw_qp_attr_init(struct iw_qp_attr *attr,
                        struct iw_cq cq);

// Makes a queue pair. Allocates.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `attr` is null or leads to as many bytes as its `size` says; `out`
// is null or good for one value.
int32_t iw_qp_create(struct iw_ctx *ctx,
                     struct iw_pd pd,
                     const struct iw_qp_attr *attr,
                     struct iw_qp *out);

// A queue pair as it is now.
//
// # Safety
// `ctx` is null or a handle that this library gave out; `out` is null or good for one value.
int32_t iw_qp_query(struct iw_ctx *ctx, struct iw_qp qp, struct iw_qp_info *out);

// Destroys a queue pair at once: a connection that is up is reset, everything posted completes as IW_WC_WR_FLUSH_ERR.
//
// # Safety
// `ctx` is null or a handle that this library gave out.
int32_t iw_qp_destroy(struct iw_ctx *ctx,
                      struct iw_qp qp);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IRONWARP_H */

/* ironwarp: iWARP (RDMA over TCP/IP) in user space, for programs in C.
 *
 * Generated from stack/capi/src by cbindgen; docs/embedding.md is the guide.
 *
 * Calls return 0 or a count, or a negative IW_E_*: iw_error_text returns a text for each, iw_last_error the details of the last
 * one. No call blocks on a peer. A handle (struct iw_stack, iw_worker, iw_ctx, iw_mr) is used by one thread at a time: a
 * second one gets IW_E_CONCURRENT_CALL, a closed handle IW_E_HANDLE. Different threads may use different handles at once.
 * Threads that share a connection use the handles of iw_qp_split, iw_cq_split and iw_srq_split.
 *
 * A pointer that is not null is valid for the call, which the library cannot check: a handle is one of this library, open or
 * closed; a text ends with a NUL; a list has as many elements as its count states; a struct that begins with its size, or whose
 * size is passed, has as many bytes. Another thread does not change them during the call. What may be null says so; other null
 * pointers are IW_E_POINTER. "Safety" states what a call relies on beyond this.
 */

#ifndef IRONWARP_H
#define IRONWARP_H

#include <stddef.h>
#include <stdint.h>

// The version of this header. The upper 16 bits change with a release that requires recompilation,
// the lower ones with a release that only adds something.
#define IW_ABI_VERSION (1 << 16)

// Success.
#define IW_OK 0

// A pointer is null that must not be, or is misaligned for its type.
#define IW_E_POINTER -1

// The handle is not of this kind, or is closed.
#define IW_E_HANDLE -2

// Another call with the same handle is in progress: on another thread, or on this one.
#define IW_E_CONCURRENT_CALL -3

// The library panicked, which is a bug. The object can only be closed.
#define IW_E_INTERNAL -4

// An argument or a field is out of range; `iw_last_error` names it.
#define IW_E_VALUE -5

// The configuration is not valid; `iw_last_error` names key, value and what is allowed.
#define IW_E_CONFIG -6

// The device, or the stack over it, could not be started.
#define IW_E_DEVICE -7

// Not available in this build of the library.
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

// The work queue is full. Reap completions and post again.
#define IW_E_QUEUE_FULL -15

// The completion queue has no free entry to reserve. Reap completions and post again.
#define IW_E_CQ_FULL -16

// Too many elements, inline bytes, private data or message bytes.
#define IW_E_TOO_LONG -17

// The connection does not support the operation: `IW_EXTENSIONS_*`.
#define IW_E_NO_OPERATION -18

// The configured number of objects is reached.
#define IW_E_LIMIT -19

// The core's control queue is full, and the call may be repeated without limit: a listen, or an
// operation on local memory. Or the completion queue is being resized. Poll the worker and call
// again. No other call fails with this code: the context keeps what the queue has no room for.
#define IW_E_BUSY -20

// The worker that executes the call is closed.
#define IW_E_WORKER_CLOSED -21

// The memory cannot be registered in this way, or contains no word there for an atomic operation.
#define IW_E_MEMORY -22

// The operating system reported an error.
#define IW_E_SYSTEM -23

// The queue is split from the context: `iw_qp_split`, `iw_cq_split`, `iw_srq_split`. Close its end
// first.
#define IW_E_SPLIT -24

// Errors.
#define IW_LOG_ERROR 1

// Also warnings.
#define IW_LOG_WARN 2

// Also information.
#define IW_LOG_INFO 3

// Also details for debugging. A release build has none.
#define IW_LOG_DEBUG 4

// The program has called `rte_eal_init` itself. The library uses that environment and never cleans
// it up. It adds its device to it, unless the configuration names an existing one
// (`port.device.dpdk`). The program closes every stack, context and worker before it calls
// `rte_eal_cleanup`.
#define IW_CALLER_OWNS_EAL 1

// Two stacks linked by DPDK's rings.
#define IW_PAIR_RING 1

// Two stacks linked by ordinary memory, without DPDK: for tests of a program's own logic.
#define IW_PAIR_MEMORY 2

// A read depth that start-up leaves to the programs (RFC 6581 s9.1).
#define IW_READS_UNNEGOTIATED 16383

// The peer that requests a connection lets either side send first. Otherwise the peer does.
#define IW_NEGOTIATED_PEER_TO_PEER 1

// It is over SCTP, else over TCP.
#define IW_NEGOTIATED_SCTP 2

// The first transport of `stack.transport`.
#define IW_TRANSPORT_DEFAULT 0

// MPA over TCP (RFC 5044).
#define IW_TRANSPORT_TCP 1

// SCTP (RFC 5043).
#define IW_TRANSPORT_SCTP 2

// Atomic operations and Immediate Data as configured (`rdmap.extensions`).
#define IW_EXTENSIONS_DEFAULT 0

// None.
#define IW_EXTENSIONS_OFF 1

// Those of RFC 7306.
#define IW_EXTENSIONS_RFC7306 2

// Those of RFC 7306, and Swap of draft -03.
#define IW_EXTENSIONS_DRAFT03 3

// Those of draft -01.
#define IW_EXTENSIONS_DRAFT01 4

// The initiator's first message may be a Send without data.
#define IW_RTR_SEND 1

// It may be an RDMA Write without data.
#define IW_RTR_WRITE 2

// It may be an RDMA Read without data.
#define IW_RTR_READ 4

// A peer requests a connection: `request`, `local`, `remote`, private data. `negotiated` has the
// peer's MPA revision and the read depths that it offers; IW_READS_UNNEGOTIATED leaves a depth to
// the programs.
#define IW_EVENT_CONNECT_REQUEST 1

// The connection is established: `qp`, `local`, `remote`, `negotiated`, and on the connecting side
// private data.
#define IW_EVENT_ESTABLISHED 2

// The peer rejected the connection: `qp`, private data. `negotiated` has the read depths of the
// rejection; IW_READS_UNNEGOTIATED: it has none.
#define IW_EVENT_REJECTED 3

// The connection was not established: `qp`; `reason` is an IW_CONNECT_FAILURE_*.
#define IW_EVENT_CONNECT_FAILED 4

// A Terminate message was sent or received: `qp`, `terminate`. The end of the connection follows.
#define IW_EVENT_TERMINATED 5

// The connection has ended, and every request has completed: `qp`; `reason` is an IW_DISCONNECT_*.
#define IW_EVENT_DISCONNECTED 6

// The accepting side received the peer's first message: `qp`.
#define IW_EVENT_COMM_EST 7

// A local request failed, and the connection ends: `qp`.
#define IW_EVENT_QP_FATAL 8

// A message needed a shared receive while its completion queue was full; its connection ends:
// `cq`, `qp`.
#define IW_EVENT_CQ_ERROR 9

// Fewer receives are left than the limit of `iw_srq_arm`: `srq`. Once for each call of it.
#define IW_EVENT_SRQ_LIMIT_REACHED 10

// A queue pair that has ended consumes no more shared receives: `qp`.
#define IW_EVENT_LAST_WQE_REACHED 11

// The link of the device of `port` went down (`reason` 0) or up (1).
#define IW_EVENT_LINK 12

// A listening address is not available: `local`, `reason` IW_TRANSPORT_*.
#define IW_EVENT_LISTEN_FAILED 13

// The peer does not support atomic operations, and ended the connection over one: `qp`, `remote`
// without a port.
#define IW_EVENT_PEER_LACKS_ATOMICS 14

// An event that this version of the header does not know.
#define IW_EVENT_OTHER 15

// The peer of a queue pair exceeded its share of a shared receive queue (`iw_qp_attr.srq_share`):
// `srq`, `qp`.
#define IW_EVENT_SRQ_SHARE_EXCEEDED 16

// A request that was not answered has ended, and an answer to it has no effect: `request`.
#define IW_EVENT_REQUEST_ENDED 17

// No host answers for the address, no route leads to it, or no answer arrived in time and a router
// had reported that the peer cannot be reached.
#define IW_CONNECT_FAILURE_UNREACHABLE 1

// The peer's host refused the connection.
#define IW_CONNECT_FAILURE_REFUSED 2

// No answer arrived in time.
#define IW_CONNECT_FAILURE_TIMED_OUT 3

// The peer closed or reset the connection during start-up.
#define IW_CONNECT_FAILURE_CLOSED 4

// The peer's start-up frame violates RFC 5044, or requires what this side does not support.
#define IW_CONNECT_FAILURE_PROTOCOL 5

// No local port, connection or buffer was free.
#define IW_CONNECT_FAILURE_NO_RESOURCES 6

// A Terminate ended it.
#define IW_CONNECT_FAILURE_TERMINATED 7

// Another reason.
#define IW_CONNECT_FAILURE_OTHER 8

// The worker of its core was closed.
#define IW_CONNECT_FAILURE_WORKER_CLOSED 9

// The requested source address is not local, or its port is in use for this peer.
#define IW_CONNECT_FAILURE_SOURCE 10

// Both sides closed in order.
#define IW_DISCONNECT_CLOSED 1

// A Terminate ended it.
#define IW_DISCONNECT_TERMINATED 2

// A local error that no Terminate could report to the peer: `terminate` names it.
#define IW_DISCONNECT_LOCAL_ERROR 3

// The peer reset it.
#define IW_DISCONNECT_RESET 4

// The peer stopped acknowledging.
#define IW_DISCONNECT_TIMED_OUT 5

// Another reason.
#define IW_DISCONNECT_OTHER 6

// This side aborted it.
#define IW_DISCONNECT_ABORTED 7

// The worker of its core was closed.
#define IW_DISCONNECT_WORKER_CLOSED 8

// The peer stopped acknowledging, and a router or its host had reported that it cannot be reached.
#define IW_DISCONNECT_UNREACHABLE 9

// Receives and Read Responses may be placed here.
#define IW_ACCESS_LOCAL_WRITE 1

// The peer may read it.
#define IW_ACCESS_REMOTE_READ 2

// The peer may write it. Requires IW_ACCESS_LOCAL_WRITE.
#define IW_ACCESS_REMOTE_WRITE 4

// The peer may execute atomic operations on it. Requires IW_ACCESS_LOCAL_WRITE.
#define IW_ACCESS_REMOTE_ATOMIC 8

// Memory windows and fast regions may be bound to it, with any rights; those that write require
// IW_ACCESS_LOCAL_WRITE here.
#define IW_ACCESS_BIND 16

// Sends the bytes of `sges` or the inline data.
#define IW_WR_SEND 0

// Writes the bytes of `sges` or the inline data to `remote_offset` of `remote_stag` (RDMA Write).
#define IW_WR_WRITE 1

// Reads from `remote_offset` of `remote_stag` into the one element (RDMA Read).
#define IW_WR_READ 2

// Sends Immediate Data: the peer gets the eight octets in the completion of its oldest receive.
// Needs IW_EXTENSIONS_*.
#define IW_WR_IMMEDIATE 3

// An RDMA Write followed by Immediate Data; both are posted or neither.
#define IW_WR_WRITE_IMMEDIATE 4

// Adds `compare_add` to the peer's 8-byte word, in the fields of `compare_add_mask` (0: one
// field). The value before is stored in the one element, of 8 bytes. Needs IW_EXTENSIONS_*, as do
// the next two.
#define IW_WR_FETCH_ADD 5

// Replaces the bits of `swap_mask` by those of `swap` if the word equals `compare_add` in the bits
// of `compare_add_mask`.
#define IW_WR_CMP_SWAP 6

// Replaces the word by `swap`.
#define IW_WR_SWAP 7

// Invalidates the local steering tag `invalidate_stag`: a region's permanently, that of a window
// or fast region until it is bound again. Does not wait for earlier requests that may need the
// tag, unless IW_SEND_LOCAL_FENCE is set.
#define IW_WR_INVALIDATE 8

// Binds `window` to the one element, a part of memory that has IW_ACCESS_BIND. From then on the
// peer of this queue pair may use the window's tag with the rights of `access`, at the addresses
// of the element. Later requests of the list may use it.
#define IW_WR_BIND 9

// Makes `fast_mr` a region of the one element, as above. Its tag is valid here and, with the
// rights of `access`, for the peer: in the whole protection domain, or with IW_SEND_STREAM_SCOPED
// on this queue pair only.
#define IW_WR_FAST_REGISTER 10

// Tests whether the peer supports atomic operations: adds 0 to a word of the peer. A peer without
// support ends the connection: IW_EVENT_PEER_LACKS_ATOMICS.
#define IW_WR_PROBE_ATOMICS 11

// Adds a completion on success. A failure always adds one.
#define IW_SEND_SIGNALED 1

// Raises a solicited event at the peer.
#define IW_SEND_SOLICITED 2

// Waits for every earlier Read and atomic operation of this queue.
#define IW_SEND_FENCE 4

// Waits for every earlier request of this queue.
#define IW_SEND_LOCAL_FENCE 8

// The bytes are in `inline_data`, and the call copies them.
#define IW_SEND_INLINE 16

// A Send invalidates `invalidate_stag` at the peer; a Read invalidates the tag of its own element.
#define IW_SEND_INVALIDATE 32

// The fast region is for this queue pair only, and its peer may invalidate the tag by a Send.
#define IW_SEND_STREAM_SCOPED 64

// Success.
#define IW_WC_SUCCESS 0

// The connection ended first. It is unknown how much of the request the peer received.
#define IW_WC_WR_FLUSH_ERR 1

// The message is longer than its buffer, or than the maximum.
#define IW_WC_LOC_LEN_ERR 2

// An element names memory without the required right.
#define IW_WC_LOC_PROT_ERR 3

// The peer's response does not match the request.
#define IW_WC_BAD_RESP_ERR 4

// The request is not possible on this queue pair.
#define IW_WC_LOC_QP_OP_ERR 5

// Another error.
#define IW_WC_GENERAL_ERR 6

// A window or fast region cannot be bound: it is bound already or destroyed, the rights exceed
// those of the window or memory, or the element is not within memory of its protection domain.
#define IW_WC_MW_BIND_ERR 7

// A Send of any kind.
#define IW_WC_SEND 0

// An RDMA Write.
#define IW_WC_WRITE 1

// An RDMA Read.
#define IW_WC_READ 2

// A receive, consumed by a Send.
#define IW_WC_RECV 3

// A receive, consumed by Immediate Data: its memory is unchanged, the eight octets are in
// `immediate`.
#define IW_WC_RECV_IMMEDIATE 4

// Immediate Data that this side sent.
#define IW_WC_IMMEDIATE 5

// An atomic operation.
#define IW_WC_ATOMIC 6

// The invalidation of a local steering tag.
#define IW_WC_INVALIDATE 7

// A window's binding.
#define IW_WC_BIND 8

// A fast registration.
#define IW_WC_FAST_REGISTER 9

// The received Send requested an event.
#define IW_WC_FLAG_SOLICITED 1

// The received Send invalidated the steering tag in `invalidated_stag`.
#define IW_WC_FLAG_INVALIDATED 2

// An atomic operation of `iw_atomic`: the word's value before is in `immediate`.
#define IW_WC_FLAG_LOCAL_ATOMIC 4

// Created, not connected.
#define IW_QP_IDLE 0

// Being connected.
#define IW_QP_CONNECTING 1

// Connected.
#define IW_QP_ESTABLISHED 2

// Closing: posted requests are still sent.
#define IW_QP_DRAINING 3

// Ended.
#define IW_QP_ERROR 4

// CRCs are in use (RFC 5044 s4.4).
#define IW_FRAMING_CRC 1

// This side sends markers.
#define IW_FRAMING_MARKERS_SENT 2

// The peer sends markers.
#define IW_FRAMING_MARKERS_RECEIVED 4

// The connection is over SCTP, else over TCP.
#define IW_FRAMING_SCTP 8

// A capture file. Workers of any stack record into it (`iw_worker_start_capture`).
struct iw_capture;

// Polls a completion queue that was split from its context. Used by one thread at a time.
struct iw_cq_poller;

// One application thread's side of a stack. Used by one thread at a time.
struct iw_ctx;

// A fast region: registered memory whose address and tag are set by IW_WR_FAST_REGISTER, in the
// order of the send queue. Any thread may use the handle, one at a time. It outlives its context.
struct iw_fast_mr;

// Registered memory. Any thread may use the handle, one at a time. It outlives its context.
struct iw_mr;

// A memory window: a tag that IW_WR_BIND makes valid for the peer of one queue pair. Any thread
// may use the handle, one at a time. It outlives its context.
struct iw_mw;

// Posts to the receive queue of a queue pair that was split from its context. Used by one thread
// at a time.
struct iw_recv_poster;

// Posts to the send queue of a queue pair that was split from its context. Used by one thread at a
// time.
struct iw_send_poster;

// Posts to a shared receive queue that was split from its context. Used by one thread at a time.
struct iw_srq_poster;

// A stack: one or more devices, their addresses, and the configured number of cores.
struct iw_stack;

// One core of a stack.
struct iw_worker;

// Receives a line of the log: the `user` pointer of the registration, an `IW_LOG_*`, and a text
// that is valid during the call. May be called on any thread that calls the library, several at
// once. It must return. It must not call the library with the handle of the current call, which
// fails with IW_E_CONCURRENT_CALL.
typedef void (*iw_log_fn)(void *user, uint32_t level, const char *text);

// The result of one poll. Set `size` before the first call; the library leaves it as it is.
struct iw_poll_result {
    // sizeof(struct iw_poll_result).
    uint32_t size;
    // Not used.
    uint32_t reserved;
    // Frames received and sent, doorbells and messages handled. 0 if there was nothing to do.
    uint64_t work;
    // Nanoseconds until the next timer is due. Until then there is nothing to do unless a frame, a
    // request or a message of another worker arrives. UINT64_MAX: no timer is armed.
    uint64_t idle_ns;
};

// An IP address and a TCP port.
struct iw_addr {
    // The address in network order: 4 bytes, or 16.
    uint8_t ip[16];
    // The zone of a link-local IPv6 address, else 0.
    uint32_t scope;
    // The port, in host order.
    uint16_t port;
    // 4 or 6; 0 if there is no address.
    uint16_t family;
};

// The parameters of connect and accept. `iw_conn_params_init` sets the defaults.
struct iw_conn_params {
    // sizeof(struct iw_conn_params).
    uint32_t size;
    // Bytes of private data. Up to `iw_limits.private_data_bytes` always fit.
    uint32_t private_data_bytes;
    // Private data for the peer's application.
    const uint8_t *private_data;
    // IW_EXTENSIONS_*: the operations of the connection besides Send, Write and Read. They are not
    // negotiated on the wire; both programs must use the same value.
    uint32_t extensions;
    // Connect only: the first MPA revision to try, 1 or 2; 0: as configured.
    uint32_t revision;
    // The read depth to offer (IRD), at most that of the queue pair; negative: that of the queue
    // pair.
    int32_t ird;
    // The same for ORD.
    int32_t ord;
    // Connect only: the local address to connect from. `family` 0: an address that reaches the
    // peer, with a free port. Port 0: a free port. On a stack of several cores the flow selects
    // the core of the queue pair, so a port needs an address with it there.
    struct iw_addr source;
    // Connect only: 1: either side may send first (RFC 6581 s9.2), 0: only this side, negative: as
    // configured.
    int32_t peer_to_peer;
    // The permitted kinds of ready-to-receive indication, IW_RTR_*; negative: as configured.
    int32_t rtr;
    // Connect only: the delay before the first message in microseconds; negative: as configured.
    int64_t first_fpdu_holdoff_us;
    // Connect only: IW_TRANSPORT_*, one that the stack has.
    uint32_t transport;
};

// A queue pair. 0 means none.
struct iw_qp {
    // Internal.
    uint64_t id;
};

// A peer that waits for an answer, from IW_EVENT_CONNECT_REQUEST. A request without an answer is
// closed after `mpa.startup_timeout_ms`.
struct iw_request {
    // Internal.
    uint64_t id[2];
};

// A protection domain: a queue pair reaches the memory of its own domain only. Valid in every
// context of its stack.
struct iw_pd {
    // Internal.
    uint64_t id;
};

// The limits of a stack. Set `size` before the call.
struct iw_limits {
    // sizeof(struct iw_limits).
    uint32_t size;
    // Cores that carry connections.
    uint32_t cores;
    // Queue pairs on each core.
    uint32_t queue_pairs;
    // Completion queues on each core.
    uint32_t completion_queues;
    // Shared receive queues on each core.
    uint32_t shared_receive_queues;
    // Memory regions in the stack.
    uint32_t regions;
    // Contexts.
    uint32_t contexts;
    // Requests of a send or receive queue.
    uint32_t wq_depth;
    // Entries of a completion queue.
    uint32_t cq_depth;
    // Gather or scatter elements of a request.
    uint32_t max_sge;
    // Inline bytes of a request.
    uint32_t inline_bytes;
    // Bytes of a message.
    uint32_t message_bytes;
    // Reads and atomic operations outstanding in either direction of a queue pair.
    uint32_t read_depth;
    // Bytes of private data that always fit, with any MPA revision of the peer.
    uint32_t private_data_bytes;
    // Receives of a shared receive queue, on each core.
    uint32_t srq_depth;
    // Bytes of private data that are accepted from a peer.
    uint32_t private_data_bytes_accepted;
    // Incoming connections on each core that are neither accepted nor rejected.
    uint32_t half_open;
    // Listening addresses on each core.
    uint32_t listeners;
};

// The progress of `iw_drain`. Set `size` before the call.
struct iw_drain_progress {
    // sizeof(struct iw_drain_progress).
    uint32_t size;
    // Queue pairs whose connections have not ended yet.
    uint32_t open;
    // Queue pairs that this call destroyed, because the deadline has passed.
    uint32_t aborted;
};

// A completion queue. 0 means none.
struct iw_cq {
    // Internal.
    uint64_t id;
};

// A shared receive queue. 0 means none.
struct iw_srq {
    // Internal.
    uint64_t id;
};

// The result of start-up.
struct iw_negotiated {
    // The MPA revision in use.
    uint16_t revision;
    // Reads that the peer may have outstanding here (IRD).
    uint16_t ird;
    // Reads that this side may have outstanding at the peer (ORD).
    uint16_t ord;
    // With IW_EVENT_CONNECT_REQUEST, IW_NEGOTIATED_*.
    uint16_t flags;
};

// The error that a Terminate reports (RFC 5040 s4.8, RFC 5041 s8.2, RFC 5044 s8).
struct iw_terminate {
    // The layer: 0 RDMAP, 1 DDP, 2 MPA.
    uint8_t layer;
    // The error type within the layer.
    uint8_t etype;
    // The error code within the type.
    uint8_t code;
    // 1: this side sent it.
    uint8_t sent;
};

// An event. The kind determines the fields that are set; others are 0. Set `size` before the call.
struct iw_event {
    // sizeof(struct iw_event).
    uint32_t size;
    // IW_EVENT_*.
    uint32_t kind;
    // IW_CONNECT_FAILURE_*, IW_DISCONNECT_*, IW_TRANSPORT_*, or the state of the link.
    uint32_t reason;
    // The port, from 0.
    uint32_t port;
    // The queue pair.
    struct iw_qp qp;
    // The completion queue.
    struct iw_cq cq;
    // The shared receive queue.
    struct iw_srq srq;
    // The request that waits for an answer.
    struct iw_request request;
    // The local address.
    struct iw_addr local;
    // The peer's address.
    struct iw_addr remote;
    // The result of start-up.
    struct iw_negotiated negotiated;
    // The error.
    struct iw_terminate terminate;
    // Length of the private data in bytes.
    uint32_t private_data_bytes;
    // The peer's private data.
    uint8_t private_data[512];
};

// The names of registered memory. Set `size` before the call. It is no message for a peer: a
// program sends the numbers that the peer needs in an order of its own.
struct iw_mr_info {
    // sizeof(struct iw_mr_info).
    uint32_t size;
    // The steering tag: the `lkey` of an element, and the number for the peer.
    uint32_t stag;
    // The tagged offset of the first byte, in work requests and for the peer: the address of that
    // byte.
    uint64_t offset;
    // Length in bytes.
    uint64_t length;
    // IW_ACCESS_*.
    uint32_t access;
    // Not used.
    uint32_t reserved;
};

// An atomic operation, with the operands of the request to a peer.
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

// The steering tags of a memory window or fast region. Set `size` before the call.
struct iw_stag_info {
    // sizeof(struct iw_stag_info).
    uint32_t size;
    // The tag of the last posted binding, valid or not; 0: none was posted.
    uint32_t stag;
    // The tag of the next binding.
    uint32_t next_stag;
};

// The state of a port. Set `size` before the call.
struct iw_port_info {
    // sizeof(struct iw_port_info).
    uint32_t size;
    // The largest IP packet, in bytes.
    uint32_t mtu_bytes;
    // The link address.
    uint8_t mac[6];
    // 1 if the device has a link, else 0; with memif: if the peer is connected.
    uint16_t link_up;
    // The speed in Mbit/s; 0 if the device does not report one. A virtual device reports a nominal
    // speed.
    uint32_t speed_mbps;
    // The memory node (NUMA) of the device; -1 if it is not known.
    int32_t memory_node;
    // The number of configured addresses: `iw_port_addresses` returns them.
    uint32_t addresses;
    // The kind of device, as in the configuration.
    char device[16];
};

// A local address and its network.
struct iw_port_address {
    // The address; its port is 0.
    struct iw_addr addr;
    // The length of the network prefix in bits.
    uint32_t prefix_len;
    // Not used.
    uint32_t reserved;
};

// A part of registered memory.
struct iw_sge {
    // The tagged offset of the first byte, which is its address.
    uint64_t addr;
    // Length in bytes.
    uint32_t length;
    // The steering tag of the memory.
    uint32_t lkey;
};

// A request for the send queue. Fields that its opcode does not use are ignored.
struct iw_send_wr {
    // Returned in the completion.
    uint64_t wr_id;
    // IW_WR_*.
    uint32_t opcode;
    // IW_SEND_*.
    uint32_t flags;
    // Elements. The call copies them; the memory that they name must not change until the
    // completion.
    const struct iw_sge *sges;
    // The number of elements.
    uint32_t sge_count;
    // The peer's steering tag.
    uint32_t remote_stag;
    // The tagged offset within that memory.
    uint64_t remote_offset;
    // The bytes, with IW_SEND_INLINE.
    const uint8_t *inline_data;
    // The number of inline bytes.
    uint32_t inline_bytes;
    // The tag to invalidate.
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
    // The window of IW_WR_BIND. It gets the tag of `iw_stag_info.next_stag`.
    struct iw_mw *window;
    // The fast region of IW_WR_FAST_REGISTER, in the same way.
    struct iw_fast_mr *fast_mr;
    // The rights of the peer by either tag, and of this side by a fast region's: IW_ACCESS_*.
    uint32_t access;
    // Not used.
    uint32_t reserved;
};

// A request for a receive queue.
struct iw_recv_wr {
    // Returned in the completion.
    uint64_t wr_id;
    // Elements. The call copies them; the program must not access the memory that they name until
    // the completion.
    const struct iw_sge *sges;
    // The number of elements.
    uint32_t sge_count;
    // Not used.
    uint32_t reserved;
};

// The attributes of a new completion queue. `iw_cq_attr_init` sets the defaults.
struct iw_cq_attr {
    // sizeof(struct iw_cq_attr).
    uint32_t size;
    // Requests that may be posted and not reaped.
    uint32_t depth;
    // The core whose queue pairs may use it; negative: all cores, each with a ring of this depth.
    int32_t core;
};

// The completion of one work request.
struct iw_wc {
    // The `wr_id` of the request.
    uint64_t wr_id;
    // The queue pair's number (`iw_qp_info`); with IW_WC_FLAG_LOCAL_ATOMIC 0.
    uint32_t qp_num;
    // Length of the message in bytes, if the status is IW_WC_SUCCESS.
    uint32_t byte_len;
    // The status: IW_WC_SUCCESS to IW_WC_MW_BIND_ERR.
    uint32_t status;
    // The operation: IW_WC_SEND to IW_WC_FAST_REGISTER.
    uint32_t opcode;
    // IW_WC_FLAG_SOLICITED, IW_WC_FLAG_INVALIDATED, IW_WC_FLAG_LOCAL_ATOMIC.
    uint32_t flags;
    // With IW_WC_FLAG_INVALIDATED, the steering tag.
    uint32_t invalidated_stag;
    // With IW_WC_RECV_IMMEDIATE and IW_WC_IMMEDIATE, the eight octets; with
    // IW_WC_FLAG_LOCAL_ATOMIC, the bytes of a uint64_t.
    uint8_t immediate[8];
};

// The state of a completion queue. Set `size` before the call.
struct iw_cq_info {
    // sizeof(struct iw_cq_info).
    uint32_t size;
    // Requests that may be posted and not reaped. A larger depth is shown once it is in effect.
    uint32_t depth;
    // Reserved entries: for requests that are posted and not reaped, and not known to have ended
    // without a completion.
    uint32_t reserved_cqes;
    // Uses by queue pairs: one that sends and receives into it counts twice.
    uint32_t users;
    // The core that it is bound to; -1: none.
    int32_t core;
};

// The attributes of a new shared receive queue. `iw_srq_attr_init` sets the defaults.
struct iw_srq_attr {
    // sizeof(struct iw_srq_attr).
    uint32_t size;
    // Receives on each core.
    uint32_t depth;
    // Elements of a receive.
    uint32_t max_sge;
    // The core whose queue pairs may use it; negative: all cores, each with a ring of this depth.
    int32_t core;
};

// The state of a shared receive queue. Set `size` before the call.
struct iw_srq_info {
    // sizeof(struct iw_srq_info).
    uint32_t size;
    // The capacity in receives, on all cores together; at least the requested number.
    uint32_t depth;
    // Receives that are posted and not consumed by a message.
    uint32_t posted;
    // Elements of a receive.
    uint32_t max_sge;
    // Queue pairs that use it.
    uint32_t users;
    // The core that it is bound to; -1: none.
    int32_t core;
};

// The attributes of a new queue pair. `iw_qp_attr_init` sets the defaults.
struct iw_qp_attr {
    // sizeof(struct iw_qp_attr).
    uint32_t size;
    // The core that it connects from; negative: the one with the fewest queue pairs. A queue pair
    // that accepts uses the core of the connection.
    int32_t core;
    // The completion queue of sends.
    struct iw_cq send_cq;
    // The completion queue of receives.
    struct iw_cq recv_cq;
    // The shared receive queue; 0: the queue pair has receives of its own.
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
    // Reads and atomic operations that this side may have outstanding at the peer (ORD).
    uint16_t ord;
    // Not 0: Sends and Writes complete when their bytes are copied, instead of when the peer has
    // acknowledged them.
    uint32_t complete_on_copy;
    // The receives of `srq` that this queue pair's peer may use (RFC 5042 s6.4.3.1); 0: no limit.
    // Beyond it, IW_EVENT_SRQ_SHARE_EXCEEDED is raised.
    uint32_t srq_share;
    // Not 0: a message beyond the share gets no receive, which ends its connection.
    uint32_t srq_share_enforced;
    // 1: places tagged segments beyond a gap before the gap is filled, where markers and CRCs
    // allow it; 0: does not; negative: as configured.
    int32_t place_out_of_order;
    // The time in milliseconds after which unacknowledged sends, or Reads without a response, end
    // the connection; 0: as configured.
    uint32_t user_timeout_ms;
    // The time after which a peer whose window stays closed ends the connection; 0: as configured.
    uint32_t zero_window_timeout_ms;
    // Keep-alive probes without a reply that end the connection, 2 to 255; 0: as configured, by
    // default none are sent.
    uint32_t keep_alive_probes;
    // With keep_alive_probes, the idle time before the first probe, in milliseconds.
    uint32_t keep_alive_idle_ms;
    // With keep_alive_probes, the interval between further probes, in milliseconds.
    uint32_t keep_alive_interval_ms;
};

// The state of a queue pair. Set `size` before the call.
struct iw_qp_info {
    // sizeof(struct iw_qp_info).
    uint32_t size;
    // The number in completions.
    uint32_t num;
    // IW_QP_IDLE to IW_QP_ERROR.
    uint32_t state;
    // The capacity of the send queue, at least the requested one.
    uint32_t send_depth;
    // The capacity of the receive queue; 0 with a shared queue.
    uint32_t recv_depth;
    // Send requests posted and not yet completed by the core.
    uint32_t sends_outstanding;
    // Receives posted and not yet completed by the core.
    uint32_t receives_outstanding;
    // The core that it is on; -1 before connect or accept.
    int32_t core;
    // Elements in a request.
    uint32_t max_sge;
    // Inline bytes in a request.
    uint32_t inline_bytes;
    // The read depth that it was created for (IRD).
    uint16_t ird;
    // The same for ORD.
    uint16_t ord;
    // The result of start-up; `revision` is 0 before.
    struct iw_negotiated negotiated;
    // The framing in use, once start-up has finished: IW_FRAMING_*.
    uint32_t framing;
    // The local address of the connection, from IW_EVENT_ESTABLISHED on; `family` is 0 before.
    struct iw_addr local;
    // The peer's address, in the same way.
    struct iw_addr remote;
};

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

// Returns the `IW_ABI_VERSION` of the loaded library. A program is compatible if the upper 16 bits
// equal those of its header and the lower ones are not less. Any thread.
uint32_t iw_abi_version(void);

// Returns the library's version as text. Any thread; never freed.
const char *iw_version(void);

// Returns the nanoseconds of the system's monotonic clock (`CLOCK_MONOTONIC`), the clock of
// deadlines. Any thread.
uint64_t iw_now_ns(void);

// Returns a text for an error number. Any thread; never freed, never null.
const char *iw_error_text(int32_t code);

// Returns the text of the last call that failed on this thread, one line. Valid until the thread's
// next call that fails; never null.
const char *iw_last_error(void);

// Passes the library's log to `function`, lines of `level` and more severe; null ends that.
// Replaces the function of an earlier call, which may still run on another thread. DPDK's log is
// separate, see `rte_log`. Any thread. Fails with IW_E_STATE if another Rust library of the
// process has a log.
//
// # Safety
// `function` may be called with `user` from any thread until it is replaced.
int32_t iw_set_log(iw_log_fn function, void *user, uint32_t level);

// Creates a capture file, readable for its owner only. Frames contain the data of the peers.
int32_t iw_capture_create(const char *path, struct iw_capture **out);

// Writes out what is buffered.
int32_t iw_capture_flush(const struct iw_capture *capture);

// Closes the handle. Workers that record continue until `iw_worker_stop_capture`.
int32_t iw_capture_close(struct iw_capture *capture);

// Reads one counter of a stack by its name, the sum over all cores, as `iwarp-top` shows it.
int32_t iw_stack_counter(const struct iw_stack *stack, const char *name, uint64_t *value);

// Reads one counter of one core by its name.
int32_t iw_stack_core_counter(const struct iw_stack *stack, uint32_t core, const char *name, uint64_t *value);

// Reads one counter of a port's device or network by its name, the sum over all cores.
int32_t iw_stack_port_counter(const struct iw_stack *stack, uint32_t port, const char *name, uint64_t *value);

// Returns the number of counters.
int32_t iw_stack_counters(const struct iw_stack *stack);

// Returns the name and value of a counter by its number, 0 to `iw_stack_counters` - 1. `name` has
// room for `size` bytes; 48 are always enough.
int32_t iw_stack_counter_at(const struct iw_stack *stack,
                            uint32_t number,
                            char *name,
                            uintptr_t size,
                            uint64_t *value);

// Opens a stack from a configuration in TOML; `configs/memif-server.toml` explains the keys. Opens
// the device and allocates all memory, which may take seconds.
int32_t iw_stack_open(const char *toml, uint32_t flags, struct iw_stack **out);

// As `iw_stack_open`, from a file.
int32_t iw_stack_open_file(const char *path, uint32_t flags, struct iw_stack **out);

// Opens two stacks in this process that are linked back to back. Both need the same `port` and
// `core` tables.
int32_t iw_stack_open_pair(const char *first_toml,
                           const char *second_toml,
                           uint32_t kind,
                           uint32_t flags,
                           struct iw_stack **first_out,
                           struct iw_stack **second_out);

// Closes the handle. Its contexts and workers continue, and the device stays open until the last
// worker is closed. Workers that were not taken are closed.
int32_t iw_stack_close(struct iw_stack *stack);

// Returns the number of cores. Workers are numbered from 0.
int32_t iw_stack_cores(const struct iw_stack *stack);

// Cleans up the DPDK environment that the library started. Call it after the last stack is closed,
// at the end of a program that does not use DPDK itself; no stack can be opened over a device
// afterwards.
int32_t iw_dpdk_cleanup(void);

// Takes the worker of one core, once for each core. Any thread may poll it, one at a time.
int32_t iw_worker_take(struct iw_stack *stack, uint32_t core, struct iw_worker **out);

// Runs one iteration of a worker's loop: receives at most `budget` bursts of frames and handles
// everything that follows. Never blocks and never allocates. Its only system call wakes a thread
// that waits at a descriptor. Returns the amount of work. `polled` may be null. A program that
// pauses the workers of a stack until their timers are due must poll all of them again after one
// had work, since they pass frames to each other.
int32_t iw_worker_poll(struct iw_worker *worker, uint32_t budget, struct iw_poll_result *polled);

// Runs a worker on a thread of the library until `iw_worker_stop`, pinned to `processor` unless
// that is negative. Polling it meanwhile fails with IW_E_STATE.
int32_t iw_worker_start(struct iw_worker *worker, int32_t processor);

// Ends the thread of `iw_worker_start`; the worker can be polled again. Waits for the current
// iteration.
int32_t iw_worker_stop(struct iw_worker *worker);

// Prepares to wait for the descriptor of `iw_worker_wake_fd`, for a program that owns the loop and
// has polled without work. Runs one iteration. Returns 1 if the program may wait now: then the
// descriptor becomes readable as soon as the worker has to be polled. Returns 0 if there is work:
// poll again. Needs `core.idle = "sleep"`; otherwise fails with IW_E_STATE.
int32_t iw_worker_arm(struct iw_worker *worker);

// Stores the descriptor that becomes readable when the worker has to be polled after
// `iw_worker_arm` returned 1. It is an epoll descriptor: wait for it with `poll` or `epoll`, and
// do not read or close it. The next poll of the worker resets it. Needs `core.idle = "sleep"`.
int32_t iw_worker_wake_fd(struct iw_worker *worker, int32_t *fd);

// Records the frames of the worker's ports from now on. The interface of the capture is called
// `name`, followed by the port's number if there are several.
int32_t iw_worker_start_capture(struct iw_worker *worker, const struct iw_capture *capture, const char *name);

// Stops recording and writes out what is buffered.
int32_t iw_worker_stop_capture(struct iw_worker *worker);

// Returns 1 if the device has a link, of several devices any, else 0. May call the kernel.
int32_t iw_worker_link_up(struct iw_worker *worker);

// Closes a worker. Connections on its core end without a message to the peer, calls that need it
// fail with IW_E_WORKER_CLOSED, and the last worker of a stack closes the device. Drain the
// contexts first (`iw_drain`).
int32_t iw_worker_close(struct iw_worker *worker);

// Parses an address such as `10.0.0.1:4791` or `[2001:db8::1]:4791`. Any thread.
int32_t iw_addr_parse(const char *text_of_address, struct iw_addr *out);

// Writes an address as text into `size` bytes; 64 are always enough. Any thread.
int32_t iw_addr_text(const struct iw_addr *address, char *room, uintptr_t size);

// Sets the defaults: no private data, everything else as configured and as in the queue pair.
// `size` is sizeof(struct iw_conn_params): programs call `iw_conn_params_init`, which passes it.
int32_t iw_conn_params_init_sized(struct iw_conn_params *params, uintptr_t size);

// Listens on an address. Peers are reported by IW_EVENT_CONNECT_REQUEST, an address in use by
// IW_EVENT_LISTEN_FAILED.
int32_t iw_listen(struct iw_ctx *ctx, const struct iw_addr *local);

// As `iw_listen`, and stores the address with its port in `bound`: port 0 selects a port from
// 49152 on that no context of the stack listens on.
int32_t iw_listen_bound(struct iw_ctx *ctx, const struct iw_addr *local, struct iw_addr *bound);

// As `iw_listen_bound`, over a transport, IW_TRANSPORT_*, that the stack has. TCP and SCTP may
// have one address and port.
int32_t iw_listen_over(struct iw_ctx *ctx,
                       uint32_t transport,
                       const struct iw_addr *local,
                       struct iw_addr *bound);

// Stops listening on an address. Existing connections continue.
int32_t iw_unlisten(struct iw_ctx *ctx, const struct iw_addr *local);

// As `iw_unlisten`, over the transport of `iw_listen_over`.
int32_t iw_unlisten_over(struct iw_ctx *ctx, uint32_t transport, const struct iw_addr *local);

// Connects an idle queue pair. IW_EVENT_ESTABLISHED, IW_EVENT_REJECTED or IW_EVENT_CONNECT_FAILED
// follows. A null `params` means the defaults.
int32_t iw_connect(struct iw_ctx *ctx,
                   struct iw_qp qp,
                   const struct iw_addr *remote,
                   const struct iw_conn_params *params);

// Accepts a connection request with an idle queue pair. IW_EVENT_ESTABLISHED or
// IW_EVENT_CONNECT_FAILED follows. If the call fails, the request can still be answered. A null
// `params` means the defaults.
int32_t iw_accept(struct iw_ctx *ctx,
                  const struct iw_request *request,
                  struct iw_qp qp,
                  const struct iw_conn_params *params);

// Rejects a connection request with private data for the peer.
int32_t iw_reject(struct iw_ctx *ctx,
                  const struct iw_request *request,
                  const uint8_t *private_data,
                  uint32_t private_data_bytes);

// Disconnects after everything posted was sent and acknowledged. IW_EVENT_DISCONNECTED follows.
// Later posts fail.
int32_t iw_disconnect(struct iw_ctx *ctx, struct iw_qp qp);

// Moves a queue pair to the error state: resets its connection and completes every posted request
// as flushed. IW_EVENT_DISCONNECTED follows, or IW_EVENT_CONNECT_FAILED if the connection was not
// established; neither if the queue pair was idle. The queue pair stays, so that its completions
// can be reaped before it is destroyed.
int32_t iw_abort(struct iw_ctx *ctx, struct iw_qp qp);

// Returns the core, from 0, at which a request arrived; the accepted queue pair stays there. A
// program with a context for each core may answer with the context of that core's thread.
int32_t iw_request_core(const struct iw_request *request);

// Returns 1 if the peer at an address, with any port, is known to lack atomic operations, else 0.
// The library records this at IW_EVENT_PEER_LACKS_ATOMICS. It forgets it after an atomic operation
// succeeded with that peer, or after `rdmap.lacks_atomics_cache_s`.
int32_t iw_lacks_atomics(const struct iw_ctx *ctx, const struct iw_addr *peer);

// Opens a context. Allocates.
int32_t iw_ctx_open(const struct iw_stack *stack, struct iw_ctx **out);

// Closes a context with all its queue pairs and queues. Open connections are reset: drain first
// (`iw_drain`). Its memory is revoked with it: no peer and no other context reaches it. Deregister
// it as ever.
int32_t iw_ctx_close(struct iw_ctx *ctx);

// Creates a protection domain. It needs no memory and is not destroyed.
int32_t iw_pd_alloc(const struct iw_ctx *ctx, struct iw_pd *out);

// Returns the limits of the context's stack.
int32_t iw_limits_query(const struct iw_ctx *ctx, struct iw_limits *out);

// One step of an orderly shutdown. Closes every connection of the context as `iw_disconnect` does,
// and destroys the remaining queue pairs after the deadline, in nanoseconds of `iw_now_ns`. Never
// waits. Returns the number of open connections: call it again until it returns 0, and poll
// workers, events and completions in between. Does not stop listening. `drained` may be null.
int32_t iw_drain(struct iw_ctx *ctx, uint64_t deadline_ns, struct iw_drain_progress *drained);

// Requests that the descriptor of `iw_event_fd` becomes readable at the next event. Call
// `iw_event_poll` until it returns 0 after this call: earlier events do not wake.
int32_t iw_event_arm(struct iw_ctx *ctx);

// Stores the descriptor of a context's events, an eventfd that becomes readable once for each
// `iw_event_arm`; read its eight bytes. The context owns it; do not close it. Any thread may wait
// for `fd`, while a worker is polled.
int32_t iw_event_fd(const struct iw_ctx *ctx, int32_t *fd);

// Takes the oldest event. Returns 1, or 0 if there is none. Call it regularly, also while objects
// are being destroyed: it frees their memory.
int32_t iw_event_poll(struct iw_ctx *ctx, struct iw_event *out);

// Registers memory of the program: a pool of huge pages, a mapping, its heap. The program keeps
// it; nothing is copied or freed. Fails with IW_E_MEMORY if a byte is not mapped, or may not be
// read, or not be written where `access` lets the program or its peer write.
//
// The bytes must stay valid until `iw_mr_poll_deregistered` returns 1. Until a completion or a
// message of the peer shows that an operation is done, the program must not access bytes that the
// operation may write, and must not change bytes that it may read.
//
// # Safety
// `ctx` is null or a handle of this library. `address` is null or points to `length` bytes that
// fulfil the conditions above. `out` is null or valid for writes of one pointer.
int32_t iw_mr_register(struct iw_ctx *ctx,
                       struct iw_pd pd,
                       void *address,
                       uintptr_t length,
                       uint32_t access,
                       struct iw_mr **out);

// As `iw_mr_register`, for one queue pair only, whose peer may invalidate the tag by a Send.
int32_t iw_mr_register_for_qp(struct iw_ctx *ctx,
                              struct iw_qp qp,
                              void *address,
                              uintptr_t length,
                              uint32_t access,
                              struct iw_mr **out);

// As `iw_mr_register`, with all words owned by one core: atomic operations on them execute there,
// instead of on the core that each cache line's hash selects. This avoids messages between cores
// if all connections that use a word are on one core.
//
// Bytes that are registered several times must be pinned to the same core each time; otherwise the
// call fails with IW_E_MEMORY.
int32_t iw_mr_register_on_core(struct iw_ctx *ctx,
                               struct iw_pd pd,
                               void *address,
                               uintptr_t length,
                               uint32_t access,
                               uint32_t core,
                               struct iw_mr **out);

// Allocates and registers `length` zeroed bytes at a multiple of 4096, and stores their address.
// They are freed soon after `iw_mr_poll_deregistered` returns 1; until then the conditions of
// `iw_mr_register` apply.
int32_t iw_mr_alloc(struct iw_ctx *ctx,
                    struct iw_pd pd,
                    uintptr_t length,
                    uint32_t access,
                    void **address,
                    struct iw_mr **out);

// Returns the names of the memory. Fails with IW_E_STATE after deregistration.
int32_t iw_mr_query(const struct iw_mr *mr, struct iw_mr_info *out);

// Invalidates the tag at once: no later message and no later request can use it. Cores may still
// finish a copy; the bytes are in use until `iw_mr_poll_deregistered` returns 1.
int32_t iw_mr_deregister(struct iw_mr *mr);

// After `iw_mr_deregister`: returns 1 if the memory is unused, and the handle ends; returns 0 if
// not. Poll the workers and call again. A worker that is not polled does not delay it.
int32_t iw_mr_poll_deregistered(struct iw_mr *mr);

// Executes an atomic operation on the 8-byte word at `offset` bytes of local memory, atomically
// with those of all peers. Plain accesses are not atomic with it. The memory needs
// IW_ACCESS_LOCAL_WRITE; no connection and no extension is needed.
//
// The owner core of the word executes it, so its worker must be polled. An IW_WC_ATOMIC with
// IW_WC_FLAG_LOCAL_ATOMIC is added to `cq`, with the word's value before. Operations on words of
// one cache line execute in the order of the calls. If the memory is deregistered before, the
// completion has IW_WC_LOC_PROT_ERR.
int32_t iw_atomic(struct iw_ctx *ctx,
                  struct iw_cq cq,
                  uint64_t wr_id,
                  const struct iw_mr *mr,
                  uintptr_t offset,
                  const struct iw_atomic_op *op);

// Returns the core that executes atomic operations on a word. Not meaningful with
// `rdmap.atomic_execution = "locked"` and for lines that the owner shares
// (`rdmap.atomic_share_after`).
int32_t iw_owner_core(struct iw_ctx *ctx, const struct iw_mr *mr, uintptr_t offset, uint32_t *core);

// Creates a memory window, which counts as a region (`iw_limits.regions`).
int32_t iw_mw_create(struct iw_ctx *ctx, struct iw_pd pd, struct iw_mw **out);

// Returns the window's tags.
int32_t iw_mw_query(const struct iw_mw *mw, struct iw_stag_info *out);

// Ends the window's current binding at once, without a request and for any queue pair. A binding
// that waits in a send queue is not ended. Returns 1 when no core uses it any more, else 0: poll
// the workers and call again. The window can be bound again at any time.
int32_t iw_mw_invalidate(struct iw_mw *mw);

// Destroys a window and invalidates its tag at once. A binding of it that waits in a send queue
// fails. Cores may still finish a copy; `iw_mw_invalidate` before this call, or
// `iw_mr_poll_deregistered` of the memory, shows when they have.
int32_t iw_mw_destroy(struct iw_mw *mw);

// Creates a fast region, which counts as a region (`iw_limits.regions`).
int32_t iw_fast_mr_create(struct iw_ctx *ctx, struct iw_pd pd, struct iw_fast_mr **out);

// Returns the fast region's tags.
int32_t iw_fast_mr_query(const struct iw_fast_mr *fast_mr, struct iw_stag_info *out);

// Ends the fast region's current registration, as `iw_mw_invalidate` does a window's binding.
int32_t iw_fast_mr_invalidate(struct iw_fast_mr *fast_mr);

// Destroys a fast region, as `iw_mw_destroy` does a window.
int32_t iw_fast_mr_destroy(struct iw_fast_mr *fast_mr);

// Returns the number of ports of the context's stack. Ports are numbered from 0.
int32_t iw_ports(const struct iw_ctx *ctx);

// Returns the state of a port. The link is what core 0 last saw, at most a quarter of a second ago
// if it is polled.
int32_t iw_port_query(const struct iw_ctx *ctx, uint32_t port, struct iw_port_info *out);

// Stores up to `count` addresses of a port, in the configured order, and returns how many the port
// has: at most 8.
int32_t iw_port_addresses(const struct iw_ctx *ctx,
                          uint32_t port,
                          struct iw_port_address *out,
                          uint32_t count);

// Posts requests to a send queue in order. If one is refused, those before it are posted, and it
// and the rest are not. `posted`, which may be null, gets the number of posted requests. `size` is
// sizeof(struct iw_send_wr): programs call `iw_post_send`, which passes it.
int32_t iw_post_send_sized(struct iw_ctx *ctx,
                           struct iw_qp qp,
                           const struct iw_send_wr *wrs,
                           uintptr_t size,
                           uint32_t count,
                           uint32_t *posted);

// Posts receives in order, as `iw_post_send_sized` posts sends. `size` is sizeof(struct
// iw_recv_wr): programs call `iw_post_recv`, which passes it.
int32_t iw_post_recv_sized(struct iw_ctx *ctx,
                           struct iw_qp qp,
                           const struct iw_recv_wr *wrs,
                           uintptr_t size,
                           uint32_t count,
                           uint32_t *posted);

// Posts receives to a shared queue in order, as `iw_post_send_sized` posts sends. Programs call
// `iw_srq_post_recv`.
int32_t iw_srq_post_recv_sized(struct iw_ctx *ctx,
                               struct iw_srq srq,
                               const struct iw_recv_wr *wrs,
                               uintptr_t size,
                               uint32_t count,
                               uint32_t *posted);

// Creates a completion queue for `depth` requests that are posted and not reaped. Allocates.
int32_t iw_cq_create(struct iw_ctx *ctx, uint32_t depth, struct iw_cq *out);

// Sets the defaults: `depth` requests, all cores. `size` is sizeof(struct iw_cq_attr): programs
// call `iw_cq_attr_init`, which passes it.
int32_t iw_cq_attr_init_sized(struct iw_cq_attr *attr, uintptr_t size, uint32_t depth);

// Creates a completion queue with attributes. Allocates.
int32_t iw_cq_create_with(struct iw_ctx *ctx, const struct iw_cq_attr *attr, struct iw_cq *out);

// Changes the depth of a completion queue, with work outstanding. A larger depth takes effect when
// the cores have processed the change.
int32_t iw_cq_resize(struct iw_ctx *ctx, struct iw_cq cq, uint32_t depth);

// Moves up to `count` completions into `wcs`, oldest first for each queue pair. Returns their
// number. `size` is sizeof(struct iw_wc): programs call `iw_cq_poll`, which passes it.
int32_t iw_cq_poll_sized(struct iw_ctx *ctx,
                         struct iw_cq cq,
                         struct iw_wc *wcs,
                         uintptr_t size,
                         uint32_t count);

// Requests one event at the queue's descriptor for its next completion, or its next solicited or
// failed one. Poll once more after this call: earlier completions raise no event.
int32_t iw_cq_arm(struct iw_ctx *ctx, struct iw_cq cq, int32_t solicited_only);

// Stores the queue's descriptor, an eventfd that becomes readable once for each arming; read its
// eight bytes. The queue owns it; do not close it. Any thread may wait for `fd`.
int32_t iw_cq_fd(const struct iw_ctx *ctx, struct iw_cq cq, int32_t *fd);

// Returns the state of a completion queue.
int32_t iw_cq_query(const struct iw_ctx *ctx, struct iw_cq cq, struct iw_cq_info *out);

// Destroys a completion queue. Fails with IW_E_STILL_USED while a queue pair uses it. A destroyed
// queue pair uses it until the core has released it, which `iw_event_poll` processes: poll workers
// and events, and call again.
int32_t iw_cq_destroy(struct iw_ctx *ctx, struct iw_cq cq);

// Creates a shared receive queue for `depth` receives on each core, of at most `max_sge` elements.
// Allocates.
int32_t iw_srq_create(struct iw_ctx *ctx,
                      struct iw_pd pd,
                      uint32_t depth,
                      uint32_t max_sge,
                      struct iw_srq *out);

// Sets the defaults: `depth` receives of `max_sge` elements, all cores. `size` is sizeof(struct
// iw_srq_attr): programs call `iw_srq_attr_init`, which passes it.
int32_t iw_srq_attr_init_sized(struct iw_srq_attr *attr, uintptr_t size, uint32_t depth, uint32_t max_sge);

// Creates a shared receive queue with attributes. Allocates.
int32_t iw_srq_create_with(struct iw_ctx *ctx,
                           struct iw_pd pd,
                           const struct iw_srq_attr *attr,
                           struct iw_srq *out);

// Requests one IW_EVENT_SRQ_LIMIT_REACHED when fewer than `limit` receives are left on a core;
// immediately if fewer are left already. 0 cancels. A call replaces the one before: an event of
// that one which `iw_event_poll` has not returned is not returned any more.
int32_t iw_srq_arm(struct iw_ctx *ctx, struct iw_srq srq, uint32_t limit);

// Returns the state of a shared receive queue.
int32_t iw_srq_query(struct iw_ctx *ctx, struct iw_srq srq, struct iw_srq_info *out);

// Destroys a shared receive queue, as `iw_cq_destroy` does a completion queue. Receives posted to
// it are dropped.
int32_t iw_srq_destroy(struct iw_ctx *ctx, struct iw_srq srq);

// Sets the defaults: 128 sends, 128 receives, 16 Reads each way, all completions in `cq`. `size`
// is sizeof(struct iw_qp_attr): programs call `iw_qp_attr_init`, which passes it.
int32_t iw_qp_attr_init_sized(struct iw_qp_attr *attr, uintptr_t size, struct iw_cq cq);

// Creates a queue pair. Allocates.
int32_t iw_qp_create(struct iw_ctx *ctx, struct iw_pd pd, const struct iw_qp_attr *attr, struct iw_qp *out);

// Returns the state of a queue pair.
int32_t iw_qp_query(struct iw_ctx *ctx, struct iw_qp qp, struct iw_qp_info *out);

// Destroys a queue pair: an open connection is reset, and posted requests complete as
// IW_WC_WR_FLUSH_ERR once the core has carried out the call. The name is invalid from now on.
// Events that the core has raised may follow.
int32_t iw_qp_destroy(struct iw_ctx *ctx, struct iw_qp qp);

// Splits a queue pair from its context: `send` gets the end that posts to the send queue, `recv`
// the one that posts receives, each for any one thread. The context's calls that post fail with
// IW_E_SPLIT until the end is closed. Connecting, events, queries and `iw_qp_destroy` stay with
// the context. A queue pair that is destroyed keeps its slot until both ends are closed and
// `iw_event_poll` is called. Allocates.
int32_t iw_qp_split(struct iw_ctx *ctx,
                    struct iw_qp qp,
                    struct iw_send_poster **send,
                    struct iw_recv_poster **recv);

// Splits a completion queue from its context: `poller` gets the end that polls it on any one
// thread. `iw_cq_poll` and `iw_cq_resize` fail with IW_E_SPLIT until the end is closed. Allocates.
int32_t iw_cq_split(struct iw_ctx *ctx, struct iw_cq cq, struct iw_cq_poller **poller);

// Splits a shared receive queue from its context: `poster` gets the end that posts to it from any
// one thread. `iw_srq_post_recv` fails with IW_E_SPLIT until the end is closed. Allocates.
int32_t iw_srq_split(struct iw_ctx *ctx, struct iw_srq srq, struct iw_srq_poster **poster);

// Posts requests in order, as `iw_post_send_sized`. IW_E_NO_QP if the queue pair was destroyed, or
// its context closed. Programs call `iw_send_poster_post`.
int32_t iw_send_poster_post_sized(struct iw_send_poster *poster,
                                  const struct iw_send_wr *wrs,
                                  uintptr_t size,
                                  uint32_t count,
                                  uint32_t *posted);

// Posts receives in order, as `iw_post_recv_sized`. IW_E_NO_QP if the queue pair was destroyed, or
// its context closed. Programs call `iw_recv_poster_post`.
int32_t iw_recv_poster_post_sized(struct iw_recv_poster *poster,
                                  const struct iw_recv_wr *wrs,
                                  uintptr_t size,
                                  uint32_t count,
                                  uint32_t *posted);

// Posts receives to a shared queue in order, as `iw_srq_post_recv_sized`. IW_E_NO_SRQ if the queue
// was destroyed, or its context closed. Programs call `iw_srq_poster_post`.
int32_t iw_srq_poster_post_sized(struct iw_srq_poster *poster,
                                 const struct iw_recv_wr *wrs,
                                 uintptr_t size,
                                 uint32_t count,
                                 uint32_t *posted);

// Moves up to `count` completions into `wcs`, as `iw_cq_poll_sized`. IW_E_NO_CQ if the queue was
// destroyed, or its context closed, and every completion is reaped. Programs call
// `iw_cq_poller_poll`.
int32_t iw_cq_poller_poll_sized(struct iw_cq_poller *poller,
                                struct iw_wc *wcs,
                                uintptr_t size,
                                uint32_t count);

// Requests one event at the queue's descriptor, as `iw_cq_arm`.
int32_t iw_cq_poller_arm(struct iw_cq_poller *poller, int32_t solicited_only);

// Stores the queue's descriptor, as `iw_cq_fd`. It is open until the poller is closed and the
// queue destroyed.
int32_t iw_cq_poller_fd(const struct iw_cq_poller *poller, int32_t *fd);

// Closes an end: the context posts to the send queue again. Also after the context is closed.
int32_t iw_send_poster_close(struct iw_send_poster *poster);

// Closes an end: the context posts to the receive queue again. Also after the context is closed.
int32_t iw_recv_poster_close(struct iw_recv_poster *poster);

// Closes an end: the context posts to the shared receive queue again. Also after the context is
// closed.
int32_t iw_srq_poster_close(struct iw_srq_poster *poster);

// Closes an end: the context polls the completion queue again. Also after the context is closed.
int32_t iw_cq_poller_close(struct iw_cq_poller *poller);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* IRONWARP_H */

/* Calls that pass the size of a struct, so that a program works with a library whose struct has another size. */
#ifndef IRONWARP_INLINE_H
#define IRONWARP_INLINE_H

/* Sets the defaults of `params`: see iw_conn_params_init_sized. */
static inline int32_t iw_conn_params_init(struct iw_conn_params *params)
{
    return iw_conn_params_init_sized(params, sizeof(struct iw_conn_params));
}

/* Sets the defaults of `attr`: see iw_qp_attr_init_sized. */
static inline int32_t iw_qp_attr_init(struct iw_qp_attr *attr, struct iw_cq cq)
{
    return iw_qp_attr_init_sized(attr, sizeof(struct iw_qp_attr), cq);
}

/* Sets the defaults of `attr`: see iw_cq_attr_init_sized. */
static inline int32_t iw_cq_attr_init(struct iw_cq_attr *attr, uint32_t depth)
{
    return iw_cq_attr_init_sized(attr, sizeof(struct iw_cq_attr), depth);
}

/* Sets the defaults of `attr`: see iw_srq_attr_init_sized. */
static inline int32_t iw_srq_attr_init(struct iw_srq_attr *attr, uint32_t depth, uint32_t max_sge)
{
    return iw_srq_attr_init_sized(attr, sizeof(struct iw_srq_attr), depth, max_sge);
}

/* Takes completions: see iw_cq_poll_sized. */
static inline int32_t iw_cq_poll(struct iw_ctx *ctx, struct iw_cq cq, struct iw_wc *wcs, uint32_t count)
{
    return iw_cq_poll_sized(ctx, cq, wcs, sizeof(struct iw_wc), count);
}

/* Posts sends: see iw_post_send_sized. */
static inline int32_t iw_post_send(struct iw_ctx *ctx, struct iw_qp qp, const struct iw_send_wr *wrs,
                                   uint32_t count, uint32_t *posted)
{
    return iw_post_send_sized(ctx, qp, wrs, sizeof(struct iw_send_wr), count, posted);
}

/* Posts receives: see iw_post_recv_sized. */
static inline int32_t iw_post_recv(struct iw_ctx *ctx, struct iw_qp qp, const struct iw_recv_wr *wrs,
                                   uint32_t count, uint32_t *posted)
{
    return iw_post_recv_sized(ctx, qp, wrs, sizeof(struct iw_recv_wr), count, posted);
}

/* Posts receives to a shared queue: see iw_srq_post_recv_sized. */
static inline int32_t iw_srq_post_recv(struct iw_ctx *ctx, struct iw_srq srq, const struct iw_recv_wr *wrs,
                                       uint32_t count, uint32_t *posted)
{
    return iw_srq_post_recv_sized(ctx, srq, wrs, sizeof(struct iw_recv_wr), count, posted);
}

/* Posts sends to a split queue pair: see iw_send_poster_post_sized. */
static inline int32_t iw_send_poster_post(struct iw_send_poster *poster, const struct iw_send_wr *wrs, uint32_t count,
                                          uint32_t *posted)
{
    return iw_send_poster_post_sized(poster, wrs, sizeof(struct iw_send_wr), count, posted);
}

/* Posts receives to a split queue pair: see iw_recv_poster_post_sized. */
static inline int32_t iw_recv_poster_post(struct iw_recv_poster *poster, const struct iw_recv_wr *wrs, uint32_t count,
                                          uint32_t *posted)
{
    return iw_recv_poster_post_sized(poster, wrs, sizeof(struct iw_recv_wr), count, posted);
}

/* Posts receives to a split shared queue: see iw_srq_poster_post_sized. */
static inline int32_t iw_srq_poster_post(struct iw_srq_poster *poster, const struct iw_recv_wr *wrs, uint32_t count,
                                         uint32_t *posted)
{
    return iw_srq_poster_post_sized(poster, wrs, sizeof(struct iw_recv_wr), count, posted);
}

/* Takes completions of a split queue: see iw_cq_poller_poll_sized. */
static inline int32_t iw_cq_poller_poll(struct iw_cq_poller *poller, struct iw_wc *wcs, uint32_t count)
{
    return iw_cq_poller_poll_sized(poller, wcs, sizeof(struct iw_wc), count);
}

#endif /* IRONWARP_INLINE_H */

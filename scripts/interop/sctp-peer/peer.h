/*
 * An independent peer for RDMA over SCTP: RFC 5043, RFC 6581 s7 and s9, RFC 5041, RFC 5040, RFC 7306 s5.
 *
 *   transport.c  an SCTP association: usrsctp in user space, or the kernel's sockets with -DKERNEL_SCTP
 *   session.c    DDP stream sessions: the order of chunks by DDP-SSN, and session control
 *   rdmap.c      DDP segments and RDMAP messages
 *   scenario.c   what the driving end does and compares, and what the responding end replies
 *   main.c       options, set-up and teardown, results as lines of JSON
 *
 * One thread runs everything: `step` sends what SCTP accepts and handles at most one received chunk.
 */
#ifndef PEER_H
#define PEER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#define ADDRESSES_MAX 8
#define STREAMS_MAX 64
/* RFC 5043 s5.2: payload protocol identifiers. s5.1: the adaptation indication of DDP. */
#define PPID_SEGMENT 16u
#define PPID_CONTROL 17u
#define INDICATION_DDP 1u
/* RFC 5043 s5.2.3: private data of a control message. */
#define PRIVATE_MAX 512
/* Longest chunk that is read; more is a violation. */
#define CHUNK_MAX 65536

struct options {
	bool serves, is_active, peer_to_peer, enhanced, responds;
	const char *scenario, *bad, *expect, *expect_violation, *reject, *private_text;
	char *local[ADDRESSES_MAX], *remote[ADDRESSES_MAX];
	int locals, remotes, port, local_port, udp_encap;
	int streams, sessions, repeat, shuffle, segment_max;
	int size, count, depth, bytes, message_bytes, private_bytes, duration_s, limit_s, linger_s;
	int ird, ord, rtr, require_ord, rto_min_ms, path_max_retrans, heartbeat_ms;
};
extern struct options opt;

/* Prints one line of JSON: {"event": EVENT, ...}. `form` gives the members behind the first. */
void report(const char *event, const char *form, ...) __attribute__((format(printf, 2, 3)));
/* Ends the program: reports the error and exits with 1. */
void fail(const char *form, ...) __attribute__((noreturn, format(printf, 1, 2)));
uint64_t now_ms(void);
void *allocate(size_t bytes);

/* ---- transport.c ---- */

struct incoming {
	uint16_t stream;
	uint32_t ppid, length;
	bool is_unordered;
	const uint8_t *data;
};

struct transport {
	bool is_up, is_lost, is_aborted, has_indication;
	uint32_t indication;
	uint16_t streams_in, streams_out;
	int path_events;
};
extern struct transport transport;

void transport_start(void);
void transport_listen(void);
/* Each returns with an association that is up, or that was refused or aborted: `transport` has it. */
void transport_accept(void);
void transport_connect(void);
/* Whether a chunk was received within the time. Notifications update `transport`. */
bool transport_receive(struct incoming *chunk, int timeout_ms);
/* False if SCTP does not accept the chunk now. */
bool transport_send(uint16_t stream, uint32_t ppid, bool is_unordered, const uint8_t *data, size_t length);
/* Chunks that the peer has not acknowledged, those without a TSN included. */
unsigned transport_outstanding(void);
/* Largest chunk that needs neither SCTP nor IP fragmentation, with room for a SACK in the packet. */
size_t transport_chunk_max(void);
/* Addresses of the peer. */
int transport_addresses(void);
void transport_shutdown(void);
void transport_abort(void);
void transport_stop(void);

/* ---- session.c ---- */

enum control { INITIATE = 1, ACCEPT, REJECT, TERMINATE, ENHANCED_INITIATE, ENHANCED_ACCEPT, ENHANCED_REJECT };

/* Closing: our Terminate is sent. Refused: by a Reject, or by a Terminate in place of a reply. */
enum session_state { IDLE, INITIATED, ESTABLISHED, CLOSING, CLOSED, REFUSED };

/* RFC 6581 s9: 16 bits each of IRD and ORD, with two flags in front. */
struct depths {
	uint16_t ird, ord;
	bool peer_to_peer;
	int rtr;
};
enum rtr { RTR_SEND = 1, RTR_WRITE = 2, RTR_READ = 4 };
#define DEPTH_UNSET 0x3fff

struct chunk {
	struct chunk *next;
	uint32_t ppid, length;
	uint16_t ssn;
	uint8_t data[];
};

struct message;

/* Memory that the peer may write and read, and what the peer says of its own in its private data. */
struct region {
	uint8_t *bytes;
	uint64_t offset;
	uint32_t stag, length;
	bool is_valid;
};

#define QUEUES 4
#define STAGED_MAX 64

struct session {
	uint16_t stream, ssn_out, ssn_in;
	enum session_state state;
	/* The control message that answered our Initiate, or the peer's. */
	enum control reply;
	bool is_active, is_enhanced, peer_to_peer, may_send, is_broken;
	/* Of DDP Stream Session Terminate: ours is wanted, and may be sent; the peer's was received. */
	bool wants_terminate, may_terminate, peer_terminated;
	unsigned received;
	/* Received out of order, in the order of their DDP-SSN. */
	struct chunk *held;
	uint32_t held_bytes;
	struct chunk *staged[STAGED_MAX];
	int staged_count, staged_at;
	struct depths peer_depths;
	int ord;
	uint8_t peer_private[PRIVATE_MAX];
	int peer_private_length;

	/* rdmap.c */
	struct message *first, *last;
	int messages;
	uint32_t msn_out[QUEUES], msn_in[QUEUES];
	/* A buffer of each queue for the message under way, and how much of it was received. */
	uint8_t *untagged[QUEUES];
	uint32_t untagged_received[QUEUES];
	uint8_t generation;
	int responses;
	bool has_terminated, was_terminated;
	int terminate_layer, terminate_type, terminate_code;
	struct region memory, sink, remote;

	/* scenario.c */
	int echoes, reads_posted, reads_done, atomics_posted, atomics_done;
	uint32_t read_received;
	uint32_t reads_length[64];
	uint64_t atomic_value;
};

struct tally {
	unsigned chunks_in, chunks_out, segments_in, controls_in, out_of_order, held_max, violations, strays;
	unsigned bad_bytes, sends_in, writes_in, reads_in, atomics_in, sessions, terminates_in, terminates_out;
	const char *violation;
};
extern struct tally tally;
extern struct session sessions[STREAMS_MAX];

void session_initiate(struct session *s);
/* Sends a DDP Stream Session Terminate once every message is sent and no earlier control message can be overtaken. */
void session_terminate(struct session *s);
void session_receive(const struct incoming *chunk);
/* Reports and counts one, and does nothing else. */
void violation(uint16_t stream, const char *name);
/* RFC 5043 s6.1: a chunk that fits no legal sequence terminates the session. */
void session_violation(struct session *s, const char *name);
/* Sends what SCTP accepts, one batch of segments at most. Whether there is more to send. */
bool session_flush(struct session *s);
/* For what breaks the rules on purpose. */
void session_stage(struct session *s, uint32_t ppid, uint16_t ssn, const uint8_t *data, size_t length);
void session_stage_control(struct session *s, int code, const uint8_t *private_data, size_t length);
void session_release(struct session *s);

/* ---- rdmap.c ---- */

enum opcode {
	WRITE, READ_REQUEST, READ_RESPONSE, SEND, SEND_INVALIDATE, SEND_SE, SEND_SE_INVALIDATE, TERMINATE_MESSAGE,
	IMMEDIATE, IMMEDIATE_SE, ATOMIC_REQUEST, ATOMIC_RESPONSE
};
enum atomic { FETCH_ADD = 0, COMPARE_SWAP = 2 };

struct atomic_request {
	enum atomic operation;
	uint32_t id, stag;
	uint64_t offset, data, mask, compare, compare_mask;
};

void rdmap_begin(struct session *s);
void rdmap_end(struct session *s);
void post_send(struct session *s, enum opcode opcode, const uint8_t *data, uint32_t length, uint32_t invalidate);
void post_write(struct session *s, uint32_t stag, uint64_t offset, const uint8_t *data, uint32_t length);
void post_read(struct session *s, uint32_t sink_at, uint32_t length, uint32_t stag, uint64_t offset);
void post_atomic(struct session *s, const struct atomic_request *request);
/* RFC 5040 s4.8. The segment is what caused it, if any; nothing more of this session is sent behind it. */
void post_terminate(struct session *s, int layer, int type, int code, const uint8_t *segment, uint32_t length);
/* Writes the next segment that the session has to send, of at most `room` octets; 0 if there is none. */
uint32_t rdmap_next(struct session *s, uint8_t *segment, uint32_t room);
void rdmap_segment(struct session *s, const uint8_t *segment, uint32_t length);

/* ---- scenario.c ---- */

/* What is received, in the order of delivery. */
void on_send(struct session *s, enum opcode opcode, const uint8_t *data, uint32_t length);
void on_read_response(struct session *s, uint32_t length, bool is_last);
void on_atomic_response(struct session *s, uint32_t id, uint64_t value);
/* True if it knows the scenario, which it then has run. */
bool scenario_run(int first);
/* Sends what `--bad` names on the first session. False if that is not something to send. */
bool scenario_break(void);

/* ---- main.c ---- */

void step(int timeout_ms);
/* Steps until the condition holds; false if it does not within the limit, or if the association ends before. */
bool step_until(bool (*holds)(int), int first);

static inline void put16(uint8_t *at, uint16_t value)
{
	at[0] = (uint8_t)(value >> 8);
	at[1] = (uint8_t)value;
}

static inline void put32(uint8_t *at, uint32_t value)
{
	put16(at, (uint16_t)(value >> 16));
	put16(at + 2, (uint16_t)value);
}

static inline void put64(uint8_t *at, uint64_t value)
{
	put32(at, (uint32_t)(value >> 32));
	put32(at + 4, (uint32_t)value);
}

static inline uint16_t get16(const uint8_t *at)
{
	return (uint16_t)(at[0] << 8 | at[1]);
}

static inline uint32_t get32(const uint8_t *at)
{
	return (uint32_t)get16(at) << 16 | get16(at + 2);
}

static inline uint64_t get64(const uint8_t *at)
{
	return (uint64_t)get32(at) << 32 | get32(at + 4);
}

#endif

/*
 * DDP segments (RFC 5041) and RDMAP messages (RFC 5040, RFC 7306 s5) of a session.
 *
 * Segments are delivered to this layer in the order of their DDP-SSN, so placing is done at delivery: RFC 5041 lets a
 * receiver choose. What is wrong ends the session with an RDMAP Terminate, behind which the stream's Terminate follows.
 */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

#define TAGGED 0x80
#define LAST 0x40
#define DDP_VERSION 1
#define RDMAP_VERSION 1
#define TAGGED_HEADER 14
#define UNTAGGED_HEADER 18
#define READ_HEADER 28
#define ATOMIC_HEADER 52
#define ATOMIC_REPLY 12
/* Room for a message of queues 1 to 3. A Terminate is the longest: 4 + 2 + 18 + 28 octets. */
#define SHORT_MESSAGE 64
/* Messages that wait to be sent, echoes and responses included. */
#define MESSAGES_MAX 4096

enum queue { SEND_QUEUE, REQUEST_QUEUE, TERMINATE_QUEUE, ATOMIC_QUEUE };
/* RFC 5040 s4.8 and RFC 5041 s7.2: layers and error types. */
enum layer { RDMA, DDP, LLP };
enum { PROTECTION = 1, OPERATION = 2, TAGGED_ERROR = 1, UNTAGGED_ERROR = 2 };

struct message {
	struct message *next;
	enum opcode opcode;
	uint32_t stag, msn, invalidate, length, done;
	uint64_t offset;
	const uint8_t *data;
	uint8_t owned[];
};

static bool is_tagged(enum opcode opcode)
{
	return opcode == WRITE || opcode == READ_RESPONSE;
}

static enum queue queue_of(enum opcode opcode)
{
	switch (opcode) {
	case READ_REQUEST:
	case ATOMIC_REQUEST: return REQUEST_QUEUE;
	case TERMINATE_MESSAGE: return TERMINATE_QUEUE;
	case ATOMIC_RESPONSE: return ATOMIC_QUEUE;
	default: return SEND_QUEUE;
	}
}

/* ---- sending ---- */

/* Queues a message; the data is copied if asked, else it must stay. */
static struct message *queue(struct session *s, enum opcode opcode, const uint8_t *data, uint32_t length, bool copies)
{
	struct message *made = allocate(sizeof *made + (copies ? length : 0));

	*made = (struct message){ .opcode = opcode, .length = length, .data = copies ? made->owned : data };
	if (copies && length)
		memcpy(made->owned, data, length);
	if (!is_tagged(opcode))
		made->msn = s->msn_out[queue_of(opcode)]++;
	if (s->last)
		s->last->next = made;
	else
		s->first = made;
	s->last = made;
	s->messages++;
	return made;
}

static void drop_messages(struct session *s)
{
	for (struct message *next; s->first; s->first = next) {
		next = s->first->next;
		free(s->first);
	}
	s->last = NULL;
	s->messages = s->responses = 0;
}

void post_send(struct session *s, enum opcode opcode, const uint8_t *data, uint32_t length, uint32_t invalidate)
{
	queue(s, opcode, data, length, true)->invalidate = invalidate;
}

void post_write(struct session *s, uint32_t stag, uint64_t offset, const uint8_t *data, uint32_t length)
{
	struct message *made = queue(s, WRITE, data, length, true);

	made->stag = stag;
	made->offset = offset;
}

void post_read(struct session *s, uint32_t sink_at, uint32_t length, uint32_t stag, uint64_t offset)
{
	uint8_t header[READ_HEADER];

	put32(header, s->sink.stag);
	put64(header + 4, s->sink.offset + sink_at);
	put32(header + 12, length);
	put32(header + 16, stag);
	put64(header + 20, offset);
	s->reads_length[s->reads_posted++ % 64] = length;
	queue(s, READ_REQUEST, header, sizeof header, true);
}

void post_atomic(struct session *s, const struct atomic_request *request)
{
	uint8_t header[ATOMIC_HEADER];

	put32(header, request->operation);
	put32(header + 4, request->id);
	put32(header + 8, request->stag);
	put64(header + 12, request->offset);
	put64(header + 20, request->data);
	put64(header + 28, request->mask);
	put64(header + 36, request->compare);
	put64(header + 44, request->compare_mask);
	s->atomics_posted++;
	queue(s, ATOMIC_REQUEST, header, sizeof header, true);
}

void post_terminate(struct session *s, int layer, int type, int code, const uint8_t *segment, uint32_t length)
{
	uint8_t body[4 + 2 + UNTAGGED_HEADER + READ_HEADER] = { 0 };
	uint32_t header = segment && segment[0] & TAGGED ? TAGGED_HEADER : UNTAGGED_HEADER, at = 4;
	bool has_header = segment && length >= header && layer != LLP;
	/* RFC 5040 figure 10: the RDMA header only of a Read Request that breaks protection. */
	bool has_read = has_header && layer == RDMA && type == PROTECTION && (segment[1] & 15) == READ_REQUEST &&
			length >= UNTAGGED_HEADER + READ_HEADER;

	if (s->has_terminated)
		return;
	body[0] = (uint8_t)(layer << 4 | type);
	body[1] = (uint8_t)code;
	body[2] = (uint8_t)((has_header ? 0xc0 : 0) | (has_read ? 0x20 : 0));
	if (has_header) {
		put16(body + at, (uint16_t)length);
		memcpy(body + at + 2, segment, header + (has_read ? READ_HEADER : 0));
		at += 2 + header + (has_read ? READ_HEADER : 0);
	}
	drop_messages(s);
	queue(s, TERMINATE_MESSAGE, body, at, true);
	s->has_terminated = true;
	tally.terminates_out++;
	report("terminate-sent", "\"stream\": %u, \"layer\": %d, \"type\": %d, \"code\": %d", s->stream, layer, type, code);
	session_terminate(s);
}

uint32_t rdmap_next(struct session *s, uint8_t *segment, uint32_t room)
{
	struct message *message = s->first;
	uint32_t header, payload;
	bool is_last;

	if (!message)
		return 0;
	header = is_tagged(message->opcode) ? TAGGED_HEADER : UNTAGGED_HEADER;
	payload = message->length - message->done;
	if (payload > room - header)
		payload = room - header;
	is_last = message->done + payload == message->length;
	segment[0] = (uint8_t)((is_tagged(message->opcode) ? TAGGED : 0) | (is_last ? LAST : 0) | DDP_VERSION);
	segment[1] = (uint8_t)(RDMAP_VERSION << 6 | message->opcode);
	if (is_tagged(message->opcode)) {
		put32(segment + 2, message->stag);
		put64(segment + 6, message->offset + message->done);
	} else {
		put32(segment + 2, message->invalidate);
		put32(segment + 6, queue_of(message->opcode));
		put32(segment + 10, message->msn);
		put32(segment + 14, message->done);
	}
	if (payload)
		memcpy(segment + header, message->data + message->done, payload);
	message->done += payload;
	if (is_last) {
		s->responses -= message->opcode == READ_RESPONSE || message->opcode == ATOMIC_RESPONSE;
		s->first = message->next;
		if (!s->first)
			s->last = NULL;
		s->messages--;
		free(message);
	}
	return header + payload;
}

/* ---- receiving ---- */

/* Where the octets lie that a tag and an offset name, or NULL with the code of RFC 5041 s7.2, which RFC 5040's equals. */
static uint8_t *find(struct region *region, uint32_t stag, uint64_t offset, uint32_t length, int *code)
{
	*code = 0;
	if (stag != region->stag || !region->is_valid)
		return NULL;
	*code = 3;
	if (offset + length < offset)
		return NULL;
	*code = 1;
	if (offset < region->offset || offset - region->offset > region->length ||
	    length > region->length - (offset - region->offset))
		return NULL;
	return region->bytes + (offset - region->offset);
}

static void on_read_request(struct session *s, const uint8_t *body, const uint8_t *segment, uint32_t segment_length)
{
	uint32_t length = get32(body + 12);
	uint8_t *from = s->memory.bytes;
	struct message *made;
	int code;

	/* RFC 5040 s5.2.1: of a Read of length 0 neither tag nor offset is looked at. */
	if (length)
		from = find(&s->memory, get32(body + 16), get64(body + 20), length, &code);
	if (!from) {
		/* RFC 5040 s4.8: TO wrap is 4 there. */
		post_terminate(s, RDMA, PROTECTION, code == 3 ? 4 : code, segment, segment_length);
		return;
	}
	tally.reads_in++;
	s->responses++;
	made = queue(s, READ_RESPONSE, from, length, false);
	made->stag = get32(body);
	made->offset = get64(body + 4);
}

static uint64_t masked_add(uint64_t old, uint64_t add, uint64_t boundaries)
{
	uint64_t sum = 0, carry = 0;

	for (int bit = 0; bit < 64; bit++) {
		uint64_t place = 1ULL << bit, digit = carry + (old >> bit & 1) + (add >> bit & 1);

		sum |= (digit & 1) << bit;
		carry = digit >> 1 && !(boundaries & place);
	}
	return sum;
}

static void on_atomic_request(struct session *s, const uint8_t *body, const uint8_t *segment, uint32_t segment_length)
{
	uint64_t old, next, data = get64(body + 20), mask = get64(body + 28);
	uint8_t reply[ATOMIC_REPLY], *at;
	int operation = body[3] & 15, code;

	if (operation != FETCH_ADD && operation != COMPARE_SWAP) {
		post_terminate(s, RDMA, OPERATION, 6, segment, segment_length);
		return;
	}
	at = find(&s->memory, get32(body + 8), get64(body + 12), 8, &code);
	if (!at) {
		post_terminate(s, RDMA, PROTECTION, code == 3 ? 4 : code, segment, segment_length);
		return;
	}
	/* RFC 7306 s8.2: catastrophic error, localized to the stream. */
	if ((uintptr_t)at % 8) {
		post_terminate(s, RDMA, OPERATION, 7, segment, segment_length);
		return;
	}
	memcpy(&old, at, sizeof old);
	if (operation == FETCH_ADD)
		next = masked_add(old, data, mask);
	else
		next = (get64(body + 36) ^ old) & get64(body + 44) ? old : (old & ~mask) | (data & mask);
	memcpy(at, &next, sizeof next);
	tally.atomics_in++;
	s->responses++;
	put32(reply, get32(body + 4));
	put64(reply + 4, old);
	queue(s, ATOMIC_RESPONSE, reply, sizeof reply, true);
}

static void on_terminate(struct session *s, const uint8_t *body)
{
	s->was_terminated = true;
	s->terminate_layer = body[0] >> 4;
	s->terminate_type = body[0] & 15;
	s->terminate_code = body[1];
	tally.terminates_in++;
	report("terminate-received", "\"stream\": %u, \"layer\": %d, \"type\": %d, \"code\": %d, \"header_bits\": %d", s->stream,
	       s->terminate_layer, s->terminate_type, s->terminate_code, body[2] >> 5);
	drop_messages(s);
	session_terminate(s);
}

/* A whole message of a queue. */
static void on_untagged(struct session *s, enum opcode opcode, const uint8_t *body, uint32_t length, const uint8_t *segment,
			uint32_t segment_length)
{
	static const uint32_t lengths[] = { [READ_REQUEST] = READ_HEADER, [ATOMIC_REQUEST] = ATOMIC_HEADER,
					    [ATOMIC_RESPONSE] = ATOMIC_REPLY, [IMMEDIATE] = 8, [IMMEDIATE_SE] = 8 };

	if ((lengths[opcode] && length != lengths[opcode]) || (opcode == TERMINATE_MESSAGE && length < 4)) {
		session_violation(s, "message-length");
		return;
	}
	if ((opcode == READ_REQUEST || opcode == ATOMIC_REQUEST) && opt.ird != DEPTH_UNSET && s->responses >= opt.ird) {
		/* RFC 5041 s7.2: there is no buffer for it. */
		post_terminate(s, DDP, UNTAGGED_ERROR, 2, segment, segment_length);
		return;
	}
	switch (opcode) {
	case READ_REQUEST: on_read_request(s, body, segment, segment_length); break;
	case ATOMIC_REQUEST: on_atomic_request(s, body, segment, segment_length); break;
	case ATOMIC_RESPONSE: on_atomic_response(s, get32(body), get64(body + 4)); break;
	case TERMINATE_MESSAGE: on_terminate(s, body); break;
	case SEND_INVALIDATE:
	case SEND_SE_INVALIDATE:
		if (get32(segment + 2) != s->memory.stag || !s->memory.is_valid) {
			post_terminate(s, RDMA, PROTECTION, 9, segment, segment_length);
			break;
		}
		s->memory.is_valid = false;
		report("invalidated", "\"stream\": %u, \"stag\": %u", s->stream, s->memory.stag);
		/* fall through */
	default:
		tally.sends_in++;
		on_send(s, opcode, body, length);
	}
}

static void on_tagged_segment(struct session *s, enum opcode opcode, const uint8_t *segment, uint32_t length)
{
	struct region *region = opcode == WRITE ? &s->memory : &s->sink;
	uint32_t payload = length - TAGGED_HEADER;
	uint8_t *to = NULL;
	int code;

	/* RFC 5041 s7.1: only segments with payload are checked. */
	if (payload) {
		to = find(region, get32(segment + 2), get64(segment + 6), payload, &code);
		if (!to) {
			post_terminate(s, DDP, TAGGED_ERROR, code, segment, length);
			return;
		}
		memcpy(to, segment + TAGGED_HEADER, payload);
	}
	if (opcode == READ_RESPONSE)
		on_read_response(s, payload, segment[0] & LAST);
	else
		tally.writes_in += !!(segment[0] & LAST);
}

static void on_untagged_segment(struct session *s, enum opcode opcode, const uint8_t *segment, uint32_t length)
{
	uint32_t qn = get32(segment + 6), msn = get32(segment + 10), mo = get32(segment + 14), payload = length - UNTAGGED_HEADER;
	uint32_t limit = qn == SEND_QUEUE ? (uint32_t)opt.message_bytes : SHORT_MESSAGE;
	int code = qn >= QUEUES ? 1 : msn != s->msn_in[qn] ? 3 : mo > limit ? 4 : payload > limit - mo ? 5 : 0;

	if (code) {
		post_terminate(s, DDP, UNTAGGED_ERROR, code, segment, length);
		return;
	}
	if (qn != queue_of(opcode)) {
		post_terminate(s, RDMA, OPERATION, 6, segment, length);
		return;
	}
	if (payload)
		memcpy(s->untagged[qn] + mo, segment + UNTAGGED_HEADER, payload);
	s->untagged_received[qn] += payload;
	if (!(segment[0] & LAST))
		return;
	/* RFC 5041 s4.1: the last segment has the highest offset, so it tells the length. */
	if (s->untagged_received[qn] != mo + payload) {
		session_violation(s, "message-gap");
		return;
	}
	s->untagged_received[qn] = 0;
	s->msn_in[qn]++;
	on_untagged(s, opcode, s->untagged[qn], mo + payload, segment, length);
}

void rdmap_segment(struct session *s, const uint8_t *segment, uint32_t length)
{
	bool tagged = segment[0] & TAGGED;
	enum opcode opcode = segment[1] & 15;

	if (s->has_terminated || s->was_terminated)
		return;
	if (length < (tagged ? TAGGED_HEADER : UNTAGGED_HEADER))
		session_violation(s, "ddp-header");
	else if ((segment[0] & 3) != DDP_VERSION)
		post_terminate(s, DDP, tagged ? TAGGED_ERROR : UNTAGGED_ERROR, tagged ? 4 : 6, segment, length);
	else if (segment[1] >> 6 > RDMAP_VERSION)
		post_terminate(s, RDMA, OPERATION, 5, segment, length);
	else if (opcode > ATOMIC_RESPONSE || tagged != is_tagged(opcode))
		post_terminate(s, RDMA, OPERATION, 6, segment, length);
	else if (s->messages > MESSAGES_MAX)
		post_terminate(s, DDP, UNTAGGED_ERROR, 2, segment, length);
	else if (tagged)
		on_tagged_segment(s, opcode, segment, length);
	else
		on_untagged_segment(s, opcode, segment, length);
}

/* ---- a session's begin and end ---- */

static void make_region(struct region *region, uint32_t stag, uint64_t offset, size_t length)
{
	if (!region->bytes)
		region->bytes = allocate(length);
	memset(region->bytes, 0, length);
	region->stag = stag;
	region->offset = offset;
	region->length = (uint32_t)length;
	region->is_valid = true;
}

void rdmap_begin(struct session *s)
{
	uint32_t tag = (uint32_t)(s->stream << 8) | s->generation++;

	make_region(&s->memory, 0x43000000u | tag, 0x100000, (size_t)opt.bytes);
	make_region(&s->sink, 0x53000000u | tag, 0x200000000, (size_t)opt.depth * (size_t)opt.size + 8);
	for (int qn = 0; qn < QUEUES; qn++) {
		s->msn_out[qn] = s->msn_in[qn] = 1;
		s->untagged_received[qn] = 0;
		if (!s->untagged[qn])
			s->untagged[qn] = allocate(qn == SEND_QUEUE ? (size_t)opt.message_bytes : SHORT_MESSAGE);
	}
	s->has_terminated = s->was_terminated = false;
	s->echoes = s->reads_posted = s->reads_done = s->atomics_posted = s->atomics_done = 0;
	s->read_received = 0;
}

/* The memory stays for the stream's next session. */
void rdmap_end(struct session *s)
{
	drop_messages(s);
}

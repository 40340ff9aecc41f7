/*
 * What the driving end does and compares, and what the responding end replies: it echoes Sends, as iwarp-responder does.
 * The driving end finds the other's memory in its private data: steering tag 4 octets, tagged offset 8, length 4.
 *
 * Sessions from `first` on run the scenario at the same time. Messages of one round go to places of their own, since
 * Writes that overlap may be placed in any order (RFC 5040 s5.5).
 */
#include "peer.h"

#include <stdlib.h>
#include <string.h>

static int wanted_echoes;

/* No two messages and no two places look alike. */
static uint8_t letter(int number, uint32_t at)
{
	return (uint8_t)(at * 31 + (at >> 8) * 7 + (uint32_t)number * 113 + 1);
}

static const uint8_t *text(int number)
{
	static uint8_t *made;

	if (!made)
		made = allocate((size_t)opt.size + 1);
	for (uint32_t at = 0; at < (uint32_t)opt.size; at++)
		made[at] = letter(number, at);
	return made;
}

static void compare(const struct session *s, const uint8_t *data, uint32_t length, int number)
{
	unsigned bad = length != (uint32_t)opt.size;

	for (uint32_t at = 0; at < length && at < (uint32_t)opt.size; at++)
		bad += data[at] != letter(number, at);
	tally.bad_bytes += bad;
	if (bad)
		report("bad-bytes", "\"stream\": %u, \"message\": %d, \"length\": %u, \"bad\": %u", s->stream, number, length, bad);
}

/* ---- received ---- */

void on_send(struct session *s, enum opcode opcode, const uint8_t *data, uint32_t length)
{
	(void)opcode;
	/* RFC 6581 s9.2: an empty Send may be the indication that the initiator is ready, which is its first message. Then it
	 * is no message of the ULP. The Initiate has DDP-SSN 0. */
	if (s->peer_to_peer && !s->is_active && !length && s->ssn_in == 2 && opt.rtr & RTR_SEND)
		return;
	if (opt.responds)
		post_send(s, SEND, data, length, 0);
	else
		compare(s, data, length, s->echoes++);
}

void on_read_response(struct session *s, uint32_t length, bool is_last)
{
	s->read_received += length;
	if (!is_last)
		return;
	if (s->reads_done == s->reads_posted || s->read_received != s->reads_length[s->reads_done % 64]) {
		session_violation(s, "read-response");
		return;
	}
	s->read_received = 0;
	s->reads_done++;
}

void on_atomic_response(struct session *s, uint32_t id, uint64_t value)
{
	if (s->atomics_done == s->atomics_posted || id != (uint32_t)s->atomics_done + 1) {
		session_violation(s, "atomic-response");
		return;
	}
	s->atomics_done++;
	s->atomic_value = value;
}

/* ---- conditions ---- */

#define ALL(condition)                                                                                                 \
	for (int each = first; each < opt.sessions; each++) {                                                          \
		const struct session *s = &sessions[each];                                                             \
		if (!(condition))                                                                                      \
			return false;                                                                                  \
	}                                                                                                              \
	return true

static bool have_echoed(int first)
{
	ALL(s->echoes >= wanted_echoes);
}

static bool have_read(int first)
{
	ALL(s->reads_done == s->reads_posted);
}

static bool have_swapped(int first)
{
	ALL(s->atomics_done == s->atomics_posted);
}

static bool is_over(int first)
{
	return sessions[first].state == CLOSED;
}

static bool has_ended(int first)
{
	return sessions[first].peer_terminated || sessions[first].state == CLOSED;
}

/* ---- operations ---- */

#define SESSIONS(first) for (struct session *s = &sessions[first]; s < &sessions[opt.sessions]; s++)

static bool lasts(int done, uint64_t begin)
{
	return opt.duration_s ? now_ms() - begin < (uint64_t)opt.duration_s * 1000 : done < opt.count;
}

static bool run_sends(int first, enum opcode opcode)
{
	uint64_t begin = now_ms();

	wanted_echoes = sessions[first].echoes;
	for (int done = 0; lasts(done, begin); done += opt.depth) {
		for (int each = 0; each < opt.depth; each++, wanted_echoes++)
			SESSIONS(first)
				post_send(s, opcode, text(s->echoes + each), (uint32_t)opt.size, s->remote.stag);
		if (!step_until(have_echoed, first))
			return false;
	}
	return true;
}

/* Reads `count` places of the peer's memory, with no more Reads outstanding than it allows. */
static bool read_back(int first, int count, uint32_t length)
{
	for (int at = 0, batch; at < count; at += batch) {
		batch = count - at;
		SESSIONS(first) {
			if (s->ord < 1) {
				report("error", "\"reason\": \"the peer allows no Reads\"");
				return false;
			}
			batch = batch < s->ord ? batch : s->ord;
		}
		for (int each = at; each < at + batch; each++)
			SESSIONS(first)
				post_read(s, (uint32_t)each * length, length, s->remote.stag, s->remote.offset + (uint32_t)each * length);
		if (!step_until(have_read, first))
			return false;
	}
	return true;
}

/* Places of `opt.size` octets in the peer's memory, as many as are used at once. */
static int places(int first)
{
	uint32_t most = (uint32_t)opt.depth;

	SESSIONS(first) {
		if (s->remote.length < (uint32_t)opt.size)
			fail("the peer offers %u octets of memory", s->remote.length);
		if (opt.size && s->remote.length / (uint32_t)opt.size < most)
			most = s->remote.length / (uint32_t)opt.size;
	}
	return (int)most;
}

static bool run_writes(int first)
{
	int count = places(first);
	uint64_t begin = now_ms();

	for (int done = 0; lasts(done, begin); done += count) {
		for (int each = 0; each < count; each++)
			SESSIONS(first)
				post_write(s, s->remote.stag, s->remote.offset + (uint64_t)each * (uint64_t)opt.size,
					   text(done + each + s->stream), (uint32_t)opt.size);
		SESSIONS(first)
			memset(s->sink.bytes, 0, s->sink.length);
		if (!read_back(first, count, (uint32_t)opt.size))
			return false;
		for (int each = 0; each < count; each++)
			SESSIONS(first)
				compare(s, s->sink.bytes + each * opt.size, (uint32_t)opt.size, done + each + s->stream);
	}
	return true;
}

static bool run_reads(int first)
{
	int count = places(first);
	uint64_t begin = now_ms();

	for (int each = 0; each < count; each++)
		SESSIONS(first)
			post_write(s, s->remote.stag, s->remote.offset + (uint64_t)each * (uint64_t)opt.size, text(each),
				   (uint32_t)opt.size);
	for (int done = 0; lasts(done, begin); done += count) {
		SESSIONS(first)
			memset(s->sink.bytes, 0, s->sink.length);
		if (!read_back(first, count, (uint32_t)opt.size))
			return false;
		for (int each = 0; each < count; each++)
			SESSIONS(first)
				compare(s, s->sink.bytes + each * opt.size, (uint32_t)opt.size, each);
	}
	return true;
}

/* One atomic operation on each session, and what was there before. */
static bool run_atomic(int first, struct atomic_request request, uint64_t before)
{
	SESSIONS(first) {
		request.id = (uint32_t)s->atomics_posted + 1;
		request.stag = s->remote.stag;
		request.offset = s->remote.offset;
		post_atomic(s, &request);
	}
	if (!step_until(have_swapped, first))
		return false;
	SESSIONS(first)
		if (s->atomic_value != before) {
			report("bad-bytes", "\"stream\": %u, \"atomic\": \"%016llx\", \"expected\": \"%016llx\"", s->stream,
			       (unsigned long long)s->atomic_value, (unsigned long long)before);
			tally.bad_bytes += 8;
		}
	return true;
}

static bool run_atomics(int first)
{
	const uint64_t all = UINT64_MAX;
	/* The operation, and the value behind it. RFC 7306 s5.1: a mask bit of FetchAdd is the top of a field. */
	const struct { struct atomic_request request; uint64_t after; } list[] = {
		{ { .operation = FETCH_ADD, .data = 5, .compare_mask = all }, 0x00000000fffffffdull + 5 },
		{ { .operation = FETCH_ADD, .data = all, .compare_mask = all }, 0x0000000100000001ull },
		{ { .operation = FETCH_ADD, .data = 0xffffffffull, .mask = 1ull << 31, .compare_mask = all }, 0x0000000100000000ull },
		{ { .operation = COMPARE_SWAP, .data = 7, .mask = all, .compare = 9, .compare_mask = all }, 0x0000000100000000ull },
		{ { .operation = COMPARE_SWAP, .data = 0xabcdefull, .mask = 0xff00ull, .compare = 1ull << 32,
		    .compare_mask = 0xffffffff00000000ull }, 0x000000010000cd00ull },
		{ { .operation = COMPARE_SWAP, .data = 0, .mask = all, .compare = 0x000000010000cd00ull, .compare_mask = all }, 0 },
	};
	uint64_t value = 0x00000000fffffffdull, found;
	uint8_t bytes[8];

	/* In the order of octets of the peer's memory, which is this machine's (RFC 7306 s5.1.1). */
	memcpy(bytes, &value, sizeof value);
	SESSIONS(first) {
		if (s->remote.length < 8 || s->remote.offset % 8)
			fail("the peer offers no memory for atomic operations");
		post_write(s, s->remote.stag, s->remote.offset, bytes, sizeof bytes);
	}
	for (size_t each = 0; each < sizeof list / sizeof *list; each++) {
		if (!run_atomic(first, list[each].request, value))
			return false;
		value = list[each].after;
	}
	if (!read_back(first, 1, 8))
		return false;
	SESSIONS(first) {
		memcpy(&found, s->sink.bytes, sizeof found);
		tally.bad_bytes += found != value ? 8 : 0;
	}
	return true;
}

/* Whether the peer ends the first session with a Terminate of this layer and type (any if negative), and a code of two. */
static bool is_terminated(int first, int layer, int type, int code, int other)
{
	struct session *s = &sessions[first];

	if (!step_until(is_over, first))
		return false;
	return s->was_terminated && s->terminate_layer == layer && (type < 0 || s->terminate_type == type) &&
	       (s->terminate_code == code || s->terminate_code == other);
}

static bool run_refused(int first, const char *name)
{
	struct session *s = &sessions[first];
	struct region *remote = &s->remote;
	struct atomic_request odd = { .operation = FETCH_ADD, .id = 1, .stag = remote->stag, .offset = remote->offset + 4,
				      .data = 1, .compare_mask = UINT64_MAX };

	if (!strcmp(name, "bad-write")) {
		post_write(s, ~remote->stag, remote->offset, text(0), (uint32_t)opt.size);
		return is_terminated(first, 1, 1, 0, 2);
	}
	if (!strcmp(name, "bad-bounds")) {
		post_write(s, remote->stag, remote->offset + remote->length - 1, text(0), (uint32_t)opt.size);
		return is_terminated(first, 1, 1, 1, 1);
	}
	if (!strcmp(name, "bad-read")) {
		post_read(s, 0, (uint32_t)opt.size, ~remote->stag, remote->offset);
		return is_terminated(first, 0, 1, 0, 3);
	}
	if (!strcmp(name, "bad-invalidate")) {
		post_send(s, SEND_INVALIDATE, text(0), (uint32_t)opt.size, ~remote->stag);
		/* RFC 5040 s5.3: the code of an STag that is not the stream's, which s4.8 has under both types. s7.2, check 4: the
		 * STag is invalid. */
		return is_terminated(first, 0, -1, 9, 0);
	}
	post_atomic(s, &odd);
	return is_terminated(first, 0, 2, 7, 7);
}

bool scenario_run(int first)
{
	const char *name = opt.scenario;

	if (!strcmp(name, "none"))
		return true;
	if (!strcmp(name, "send"))
		return run_sends(first, SEND);
	if (!strcmp(name, "send-se"))
		return run_sends(first, SEND_SE);
	if (!strcmp(name, "send-inv"))
		return run_sends(first, SEND_INVALIDATE);
	if (!strcmp(name, "write"))
		return run_writes(first);
	if (!strcmp(name, "read"))
		return run_reads(first);
	if (!strcmp(name, "atomic"))
		return run_atomics(first);
	if (!strncmp(name, "bad-", 4))
		return run_refused(first, name);
	/* Local catastrophic error: the one that any message or none may cause. */
	post_terminate(&sessions[first], 0, 0, 0, NULL, 0);
	return step_until(is_over, first);
}

/* ---- what breaks the rules ---- */

bool scenario_break(void)
{
	static const uint8_t four[4];
	/* A Write of no octets, which a receiver need not check. */
	static const uint8_t empty[14] = { 0xc1, 0x40 }, old_version[14] = { 0xc2, 0x40 };
	struct session *s = &sessions[0];
	const char *bad = opt.bad;

	if (!strcmp(bad, "ssn-twice")) {
		session_stage(s, PPID_SEGMENT, s->ssn_out, empty, sizeof empty);
		session_stage(s, PPID_SEGMENT, s->ssn_out++, empty, sizeof empty);
	} else if (!strcmp(bad, "ssn-far")) {
		session_stage(s, PPID_SEGMENT, (uint16_t)(s->ssn_out + 0x8000), empty, sizeof empty);
	} else if (!strcmp(bad, "initiate-twice")) {
		session_stage_control(s, s->is_enhanced ? ENHANCED_INITIATE : INITIATE, four, sizeof four);
	} else if (!strcmp(bad, "accept")) {
		session_stage_control(s, s->is_enhanced ? ENHANCED_ACCEPT : ACCEPT, four, sizeof four);
	} else if (!strcmp(bad, "function")) {
		session_stage_control(s, 9, four, sizeof four);
	} else if (!strcmp(bad, "terminate-private")) {
		session_stage_control(s, TERMINATE, four, sizeof four);
	} else if (!strcmp(bad, "ppid")) {
		session_stage(s, 99, s->ssn_out++, empty, sizeof empty);
	} else if (!strcmp(bad, "short")) {
		session_stage(s, PPID_SEGMENT, s->ssn_out++, NULL, 0);
	} else if (!strcmp(bad, "ordered") || !strcmp(bad, "segment-first")) {
		session_stage(s, PPID_SEGMENT, s->ssn_out++, empty, sizeof empty);
	} else if (!strcmp(bad, "ddp-version")) {
		session_stage(s, PPID_SEGMENT, s->ssn_out++, old_version, sizeof old_version);
	} else {
		return false;
	}
	session_flush(s);
	step_until(has_ended, 0);
	return true;
}

/*
 * DDP stream sessions, RFC 5043 s5.2 and s6, RFC 6581 s7 and s9.
 *
 * Takes chunks of any stream in any order, and delivers those of a session by their DDP-SSN. Chunks that fit no legal
 * sequence terminate the session and leave the association alone. At most 32767 chunks of a stream are held.
 */
#include "peer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* RFC 5043 s10: fewer chunks than this are unacknowledged, so a DDP-SSN ahead cannot be mistaken for one behind. */
#define SSN_WINDOW 32767
/* Octets that are held at most, beyond what that many chunks of an Ethernet frame have. */
#define HELD_BYTES_MAX (64u << 20)
/* RFC 6581 s9. */
#define DEPTHS_LENGTH 4
/* What `peer.h` says of private data: steering tag, tagged offset, length. */
#define REGION_LENGTH 16

struct session sessions[STREAMS_MAX];
struct tally tally;

/* ---- sending ---- */

void session_stage(struct session *s, uint32_t ppid, uint16_t ssn, const uint8_t *data, size_t length)
{
	struct chunk *made = allocate(sizeof *made + 2 + length);

	made->ppid = ppid;
	made->ssn = ssn;
	made->length = (uint32_t)length + 2;
	put16(made->data, ssn);
	if (length)
		memcpy(made->data + 2, data, length);
	if (s->staged_count == STAGED_MAX)
		fail("more than %d chunks staged", STAGED_MAX);
	s->staged[s->staged_count++] = made;
}

void session_stage_control(struct session *s, int code, const uint8_t *private_data, size_t length)
{
	uint8_t body[CHUNK_MAX];

	put16(body, (uint16_t)code);
	if (length)
		memcpy(body + 2, private_data, length);
	session_stage(s, PPID_CONTROL, s->ssn_out++, body, length + 2);
}

/* Segments of a batch are handed to SCTP in odd order if asked: a legal order of unordered chunks (RFC 5043 s10). */
static void fill(struct session *s)
{
	static uint8_t segment[CHUNK_MAX];
	size_t room = transport_chunk_max() - 2;
	int batch = opt.shuffle > 1 ? opt.shuffle : 8;

	if (opt.segment_max && room > (size_t)opt.segment_max)
		room = (size_t)opt.segment_max;
	for (uint32_t length; s->staged_count < batch && (length = rdmap_next(s, segment, (uint32_t)room));)
		session_stage(s, PPID_SEGMENT, s->ssn_out++, segment, length);
	for (int each = s->staged_count - 1; opt.shuffle > 1 && each > 0; each--) {
		int other = rand() % (each + 1);
		struct chunk *moved = s->staged[each];

		s->staged[each] = s->staged[other];
		s->staged[other] = moved;
	}
}

static bool send_staged(struct session *s)
{
	bool is_unordered = !opt.bad || strcmp(opt.bad, "ordered");

	for (; s->staged_at < s->staged_count; s->staged_at++) {
		struct chunk *next = s->staged[s->staged_at];

		if (!transport_send(s->stream, next->ppid, is_unordered || next->ppid == PPID_CONTROL, next->data, next->length))
			return false;
		free(next);
		tally.chunks_out++;
	}
	s->staged_at = s->staged_count = 0;
	return true;
}

bool session_flush(struct session *s)
{
	if (!send_staged(s))
		return true;
	if (s->state != ESTABLISHED)
		return false;
	if (s->may_send)
		fill(s);
	if (s->staged_count)
		return send_staged(s) ? s->first != NULL : true;
	/* RFC 5043 s6.6: it must not overtake our own Accept. */
	if (s->wants_terminate && (s->may_terminate || !transport_outstanding())) {
		session_stage_control(s, TERMINATE, NULL, 0);
		s->state = s->peer_terminated ? CLOSED : CLOSING;
		return !send_staged(s);
	}
	return s->wants_terminate;
}

/* ---- session control, sent ---- */

static size_t write_private(struct session *s, bool is_enhanced, const struct depths *depths, uint8_t *to)
{
	size_t most = PRIVATE_MAX, at = 0, length;
	size_t text = strlen(opt.private_text);

	if (is_enhanced) {
		put16(to, (uint16_t)(depths->peer_to_peer << 15 | !!(depths->rtr & RTR_SEND) << 14 | depths->ird));
		put16(to + 2, (uint16_t)(!!(depths->rtr & RTR_WRITE) << 15 | !!(depths->rtr & RTR_READ) << 14 | depths->ord));
		at = DEPTHS_LENGTH;
	}
	put32(to + at, s->memory.stag);
	put64(to + at + 4, s->memory.offset);
	put32(to + at + 12, s->memory.length);
	memcpy(to + at + REGION_LENGTH, opt.private_text, text);
	length = at + REGION_LENGTH + text;
	if (opt.private_bytes >= 0 && at + (size_t)opt.private_bytes > length)
		memset(to + length, 'p', at + (size_t)opt.private_bytes - length);
	if (opt.private_bytes >= 0)
		length = at + (size_t)opt.private_bytes;
	if (opt.bad && !strcmp(opt.bad, "long-private")) {
		memset(to + length, 'p', PRIVATE_MAX + 1);
		return PRIVATE_MAX + 1;
	}
	return length < most ? length : most;
}

static struct depths own_depths(void)
{
	/* RFC 6581 s9.2: without flag A the others are 0. */
	return (struct depths){ (uint16_t)opt.ird, (uint16_t)opt.ord, opt.peer_to_peer, opt.peer_to_peer ? opt.rtr : 0 };
}

static void begin(struct session *s)
{
	session_release(s);
	s->ssn_out = s->ssn_in = 0;
	s->received = 0;
	s->reply = 0;
	s->is_broken = s->wants_terminate = s->may_terminate = s->peer_terminated = s->peer_to_peer = false;
	s->peer_private_length = 0;
	s->may_send = true;
	s->ord = opt.ord;
	rdmap_begin(s);
	tally.sessions++;
}

void session_initiate(struct session *s)
{
	uint8_t private_data[2 * PRIVATE_MAX + 64] = { 0 };
	struct depths depths = own_depths();
	size_t length;

	begin(s);
	s->is_active = true;
	s->is_enhanced = opt.enhanced;
	s->state = INITIATED;
	length = write_private(s, s->is_enhanced, &depths, private_data);
	session_stage_control(s, s->is_enhanced ? ENHANCED_INITIATE : INITIATE, private_data, length);
	send_staged(s);
}

void session_terminate(struct session *s)
{
	s->wants_terminate = true;
}

void violation(uint16_t stream, const char *name)
{
	report("violation", "\"stream\": %u, \"name\": \"%s\"", stream, name);
	tally.violations++;
	if (!tally.violation)
		tally.violation = name;
}

void session_violation(struct session *s, const char *name)
{
	violation(s->stream, name);
	if (s->is_broken)
		return;
	s->is_broken = true;
	rdmap_end(s);
	if (s->state == CLOSING)
		return;
	if (s->state != INITIATED && s->state != ESTABLISHED)
		s->ssn_out = 0;
	/* Behind what is staged, whose DDP-SSNs would be missing otherwise. */
	session_stage_control(s, TERMINATE, NULL, 0);
	s->state = CLOSING;
	send_staged(s);
}

/* ---- session control, received ---- */

static void report_control(const struct session *s, int code, const uint8_t *data, size_t length)
{
	static const char *const names[] = { "", "initiate", "accept", "reject", "terminate", "enhanced-initiate",
					     "enhanced-accept", "enhanced-reject" };
	char hex[2 * PRIVATE_MAX + 1] = "";
	const struct depths *d = &s->peer_depths;

	for (size_t each = 0; each < length && each < PRIVATE_MAX; each++)
		sprintf(hex + 2 * each, "%02x", data[each]);
	if (code < ENHANCED_INITIATE)
		report("control", "\"stream\": %u, \"kind\": \"%s\", \"private\": \"%s\"", s->stream, names[code], hex);
	else
		report("control", "\"stream\": %u, \"kind\": \"%s\", \"private\": \"%s\", \"ird\": %u, \"ord\": %u, "
		       "\"peer_to_peer\": %s, \"rtr\": %d", s->stream, names[code], hex, d->ird, d->ord,
		       d->peer_to_peer ? "true" : "false", d->rtr);
}

/* Takes IRD and ORD off the private data of the enhanced forms, and where the peer's memory is. False if they are cut. */
static bool read_private(struct session *s, int code, const uint8_t **data, size_t *length)
{
	if (code >= ENHANCED_INITIATE) {
		/* RFC 6581 s7 asks for IRD and ORD in Initiate and Accept only. A Reject without them is accepted. */
		if (*length < DEPTHS_LENGTH && code != ENHANCED_REJECT)
			return false;
		memset(&s->peer_depths, 0, sizeof s->peer_depths);
		if (*length >= DEPTHS_LENGTH) {
			uint16_t first = get16(*data), second = get16(*data + 2);

			s->peer_depths = (struct depths){ first & DEPTH_UNSET, second & DEPTH_UNSET, first >> 15, 0 };
			/* RFC 6581 s9.2: they are ignored without flag A. */
			if (first >> 15)
				s->peer_depths.rtr = (first >> 14 & 1 ? RTR_SEND : 0) | (second >> 15 ? RTR_WRITE : 0) |
						     (second >> 14 & 1 ? RTR_READ : 0);
			*data += DEPTHS_LENGTH;
			*length -= DEPTHS_LENGTH;
		}
	}
	memcpy(s->peer_private, *data, *length);
	s->peer_private_length = (int)*length;
	memset(&s->remote, 0, sizeof s->remote);
	if (*length >= REGION_LENGTH)
		s->remote = (struct region){ .stag = get32(*data), .offset = get64(*data + 4), .length = get32(*data + 12) };
	return true;
}

/* RFC 6581 s9.1: what the responder replies. */
static struct depths reply_depths(const struct depths *asked)
{
	struct depths reply = { (uint16_t)opt.ird, (uint16_t)opt.ord, asked->peer_to_peer, 0 };

	if (asked->ord == DEPTH_UNSET)
		reply.ird = DEPTH_UNSET;
	if (asked->ird == DEPTH_UNSET)
		reply.ord = DEPTH_UNSET;
	else if (reply.ord > asked->ird)
		reply.ord = asked->ird;
	if (asked->peer_to_peer)
		reply.rtr = asked->rtr & opt.rtr ? asked->rtr & opt.rtr : opt.rtr;
	return reply;
}

static void on_initiate(struct session *s, bool is_enhanced)
{
	uint8_t private_data[2 * PRIVATE_MAX + 64] = { 0 };
	struct depths depths = own_depths();
	size_t length;
	int code = is_enhanced ? ENHANCED_ACCEPT : ACCEPT;

	s->is_enhanced = is_enhanced;
	if (is_enhanced) {
		depths = reply_depths(&s->peer_depths);
		s->peer_to_peer = depths.peer_to_peer;
		s->ord = depths.ord == DEPTH_UNSET ? opt.ord : depths.ord;
		/* RFC 6581 s9.1: the Reject says which ORD is needed. Plain set-up would have been accepted, hence its code. */
		if (s->peer_depths.ird != DEPTH_UNSET && s->peer_depths.ird < opt.require_ord) {
			depths.ord = (uint16_t)opt.require_ord;
			code = ENHANCED_REJECT;
		}
	}
	if (opt.reject)
		code = !strcmp(opt.reject, "busy") ? TERMINATE : !strcmp(opt.reject, "enhanced") ? ENHANCED_REJECT : REJECT;
	s->reply = (enum control)code;
	length = code == TERMINATE ? 0 : write_private(s, code >= ENHANCED_INITIATE, &depths, private_data);
	session_stage_control(s, code, private_data, length);
	s->state = code == ACCEPT || code == ENHANCED_ACCEPT ? ESTABLISHED : REFUSED;
	/* RFC 6581 s9.2: the initiator's first message says that it is ready. */
	s->may_send = !s->peer_to_peer;
	send_staged(s);
}

/* RFC 6581 s9.1, s9.2: what the initiator makes of an enhanced Accept. */
static void on_enhanced_accept(struct session *s)
{
	const struct depths *peer = &s->peer_depths;
	int rtr = peer->rtr & opt.rtr;

	if (peer->ird != DEPTH_UNSET && s->ord > peer->ird)
		s->ord = peer->ird;
	if (peer->ord != DEPTH_UNSET && opt.ird != DEPTH_UNSET && peer->ord > opt.ird) {
		post_terminate(s, 2, 0, 6, NULL, 0);
		return;
	}
	if (peer->peer_to_peer != opt.peer_to_peer || (peer->peer_to_peer && !rtr)) {
		post_terminate(s, 2, 0, 7, NULL, 0);
		return;
	}
	s->peer_to_peer = peer->peer_to_peer;
	if (!s->peer_to_peer)
		return;
	if (rtr & RTR_WRITE)
		post_write(s, s->memory.stag, 0, NULL, 0);
	else if (rtr & RTR_READ)
		post_read(s, 0, 0, s->memory.stag, 0);
	else
		post_send(s, SEND, NULL, 0, 0);
}

static void on_reply(struct session *s, int code)
{
	bool is_enhanced = code >= ENHANCED_INITIATE;

	if (code == INITIATE || code == ENHANCED_INITIATE || (is_enhanced && !s->is_enhanced) ||
	    (code == ACCEPT && s->is_enhanced)) {
		session_violation(s, "control");
		return;
	}
	s->reply = (enum control)code;
	s->may_terminate = true;
	s->state = code == ACCEPT || code == ENHANCED_ACCEPT ? ESTABLISHED : REFUSED;
	if (code == ENHANCED_ACCEPT)
		on_enhanced_accept(s);
}

static void on_control(struct session *s, const uint8_t *body, size_t length)
{
	int code = get16(body);
	const uint8_t *data = body + 2;

	length -= 2;
	if (code < INITIATE || code > ENHANCED_REJECT) {
		session_violation(s, "function");
		return;
	}
	if (length > (code == TERMINATE ? 0 : PRIVATE_MAX)) {
		session_violation(s, "private-data");
		return;
	}
	if (!read_private(s, code, &data, &length)) {
		session_violation(s, "private-data");
		return;
	}
	tally.controls_in++;
	report_control(s, code, data, length);
	if (s->state == IDLE && !opt.is_active && (code == INITIATE || code == ENHANCED_INITIATE)) {
		on_initiate(s, code == ENHANCED_INITIATE);
	} else if (s->state == INITIATED) {
		on_reply(s, code);
	} else if (code == TERMINATE && (s->state == ESTABLISHED || s->state == CLOSING)) {
		s->peer_terminated = true;
		rdmap_end(s);
		if (s->state == CLOSING)
			s->state = CLOSED;
		else
			session_terminate(s);
	} else if (s->state != CLOSING) {
		session_violation(s, "control");
	}
}

/* ---- order ---- */

static void deliver(struct session *s, const struct chunk *chunk)
{
	if (chunk->ppid == PPID_CONTROL) {
		on_control(s, chunk->data + 2, chunk->length - 2);
	} else if (s->state == ESTABLISHED && !s->peer_terminated) {
		s->may_send = true;
		tally.segments_in++;
		rdmap_segment(s, chunk->data + 2, chunk->length - 2);
	} else if (s->state != CLOSING) {
		session_violation(s, "segment");
	}
}

static struct chunk *copy(const struct incoming *in)
{
	struct chunk *made = allocate(sizeof *made + in->length);

	made->ppid = in->ppid;
	made->ssn = get16(in->data);
	made->length = in->length;
	memcpy(made->data, in->data, in->length);
	return made;
}

/* Holds a chunk in its place among those that are ahead. False for a DDP-SSN that is held or delivered, or too far. */
static bool hold(struct session *s, const struct incoming *in)
{
	uint16_t ssn = get16(in->data), ahead = (uint16_t)(ssn - s->ssn_in), behind = (uint16_t)(s->ssn_in - ssn);
	struct chunk **place = &s->held, *made;
	unsigned count = 0;

	if (s->held_bytes > HELD_BYTES_MAX) {
		session_violation(s, "held");
		return false;
	}
	if (ahead >= SSN_WINDOW) {
		session_violation(s, behind <= s->received ? "ssn-twice" : "ssn-far");
		return false;
	}
	for (; *place && (uint16_t)((*place)->ssn - s->ssn_in) < ahead; place = &(*place)->next)
		count++;
	if (*place && (*place)->ssn == ssn) {
		session_violation(s, "ssn-twice");
		return false;
	}
	tally.out_of_order += ahead > 0;
	tally.held_max = count + 1 > tally.held_max ? count + 1 : tally.held_max;
	made = copy(in);
	made->next = *place;
	*place = made;
	s->held_bytes += in->length;
	s->received++;
	return true;
}

static bool is_initiate(const struct incoming *in)
{
	int code = in->ppid == PPID_CONTROL ? get16(in->data + 2) : 0;

	return get16(in->data) == 0 && (code == INITIATE || code == ENHANCED_INITIATE);
}

void session_receive(const struct incoming *in)
{
	struct session *s = &sessions[in->stream % STREAMS_MAX];
	bool is_terminate = in->length >= 4 && in->ppid == PPID_CONTROL && get16(in->data + 2) == TERMINATE;
	bool is_over = s->state == CLOSED || s->state == REFUSED || s->state == CLOSING;

	tally.chunks_in++;
	if (in->stream >= opt.streams || in->length < 4 || (in->ppid != PPID_SEGMENT && in->ppid != PPID_CONTROL) ||
	    !in->is_unordered) {
		session_violation(s, in->stream >= opt.streams ? "stream" : in->length < 4 ? "short" :
				  !in->is_unordered ? "ordered" : "ppid");
		return;
	}
	/* RFC 5043 s6.6: a new session begins on a stream only when nothing of the old one is outstanding. */
	if (is_initiate(in) && !opt.is_active && (s->state == IDLE || is_over)) {
		begin(s);
		s->state = IDLE;
	} else if (s->is_broken) {
		s->peer_terminated |= is_terminate;
		s->state = is_terminate ? CLOSED : s->state;
		return;
	} else if (s->state == IDLE || s->state == CLOSED || s->state == REFUSED) {
		/* A Terminate is never answered here, or two ends could do so forever. */
		tally.strays++;
		if (!is_terminate)
			session_violation(s, "no-session");
		return;
	}
	if (!hold(s, in))
		return;
	while (s->held && s->held->ssn == s->ssn_in && !s->is_broken) {
		struct chunk *next = s->held;

		s->held = next->next;
		s->held_bytes -= next->length;
		s->ssn_in++;
		deliver(s, next);
		free(next);
	}
}

void session_release(struct session *s)
{
	for (struct chunk *next; s->held; s->held = next) {
		next = s->held->next;
		free(s->held);
	}
	s->held_bytes = 0;
	while (s->staged_at < s->staged_count)
		free(s->staged[s->staged_at++]);
	s->staged_at = s->staged_count = 0;
	rdmap_end(s);
}

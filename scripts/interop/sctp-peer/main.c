/*
 * sctp-peer: one end of an association with DDP stream sessions. Prints lines of JSON, the last with "event": "result".
 * Exit codes: 0 everything as expected, 1 not, 2 bad arguments.
 */
#include "peer.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* Time for the replies to what breaks the rules, and for an association to end. */
#define END_MS 5000

static const char *const usage =
	"usage: sctp-peer serve|connect --local ADDR[,ADDR] [--remote ADDR[,ADDR]] --scenario NAME [options]\n"
	"scenarios: respond (echoes Sends, offers its memory), none, send, send-se, send-inv, write, read, atomic, terminate,\n"
	"           bad-write, bad-bounds, bad-read, bad-invalidate, bad-atomic (the peer must send a Terminate)\n"
	"association: --port N (5043) --local-port N (any) --udp-encap PORT --streams N (1)\n"
	"             --rto-min MS (100) --path-max-retrans N (2) --heartbeat MS (500)\n"
	"sessions: --sessions N (1) --repeat N (1) --initiate|--await (the connecting end initiates) --enhanced --peer-to-peer\n"
	"          --ird N (16) --ord N (16) --rtr [s][w][r] (swr) --private TEXT --private-bytes N\n"
	"          --reject plain|enhanced|busy --require-ord N\n"
	"messages: --size N (64) --count N (8) --depth N (4) --bytes N (1048576) --message-bytes N (1048576) --duration S\n"
	"          --segment-max N --shuffle N (segments handed to SCTP in odd order, N at a time)\n"
	"results: --expect accept|reject|enhanced-reject|terminate|abort --expect-violation NAME --limit S (20)\n"
	"         --linger S (5; the responding end stays so long when no session is left)\n"
	"--bad NAME: ssn-twice, ssn-far, initiate-twice, accept, function, terminate-private, ppid, short, ordered, ddp-version,\n"
	"            segment-first, long-private, no-indication, other-indication. The peer must end the session.\n";

struct options opt = {
	.scenario = "respond", .expect = "accept", .private_text = "", .port = 5043, .streams = 1, .sessions = 1, .repeat = 1,
	.size = 64, .count = 8, .depth = 4, .bytes = 1 << 20, .message_bytes = 1 << 20, .private_bytes = -1, .limit_s = 20, .linger_s = 5,
	.ird = 16, .ord = 16, .rtr = RTR_SEND | RTR_WRITE | RTR_READ, .rto_min_ms = 100, .path_max_retrans = 2,
	.heartbeat_ms = 500,
};

static uint64_t last_chunk_ms, stall_ms;

void report(const char *event, const char *form, ...)
{
	va_list list;

	printf("{\"event\": \"%s\", ", event);
	va_start(list, form);
	vprintf(form, list);
	va_end(list);
	puts("}");
	fflush(stdout);
}

void fail(const char *form, ...)
{
	char text[256];
	va_list list;

	va_start(list, form);
	vsnprintf(text, sizeof text, form, list);
	va_end(list);
	report("result", "\"ok\": false, \"error\": \"%s\"", text);
	_Exit(1);
}

uint64_t now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void *allocate(size_t bytes)
{
	void *made = malloc(bytes ? bytes : 1);

	if (!made)
		fail("no memory for %zu octets", bytes);
	return made;
}

void step(int timeout_ms)
{
	struct incoming chunk;
	bool is_busy = false;

	for (int each = 0; each < opt.streams; each++)
		is_busy |= session_flush(&sessions[each]);
	if (!transport_receive(&chunk, is_busy ? 1 : timeout_ms))
		return;
	if (last_chunk_ms && now_ms() - last_chunk_ms > stall_ms)
		stall_ms = now_ms() - last_chunk_ms;
	last_chunk_ms = now_ms();
	session_receive(&chunk);
}

bool step_until(bool (*holds)(int), int first)
{
	uint64_t until = now_ms() + (uint64_t)opt.limit_s * 1000;

	while (!holds(first)) {
		if (transport.is_lost || now_ms() >= until || sessions[first].state == CLOSED)
			return false;
		step(20);
	}
	return true;
}

/* ---- conditions ---- */

static bool is_replied(int first)
{
	for (int each = first; each < opt.sessions; each++)
		if (sessions[each].state == INITIATED || sessions[each].state == IDLE)
			return false;
	return true;
}

static bool is_closed(int first)
{
	return sessions[first].state == CLOSED;
}

/* Nothing of an old session is outstanding on any stream, so that it may have a new one. */
static bool is_quiet(int first)
{
	(void)first;
	return !transport_outstanding();
}

/* ---- what both ends do ---- */

static const char *reply_name(void)
{
	switch (sessions[0].reply) {
	case ACCEPT:
	case ENHANCED_ACCEPT: return "accept";
	case REJECT: return "reject";
	case ENHANCED_REJECT: return "enhanced-reject";
	case TERMINATE: return "terminate";
	default: return transport.is_lost ? "abort" : "none";
	}
}

/* Ends a session alone; what is left of the others must still work. */
static bool tear_down(int which)
{
	if (sessions[which].state != CLOSED) {
		session_terminate(&sessions[which]);
		if (!step_until(is_closed, which))
			return false;
	}
	if (which + 1 == opt.sessions || !strcmp(opt.scenario, "none"))
		return true;
	opt.scenario = strcmp(opt.scenario, "send-inv") && strcmp(opt.scenario, "terminate") &&
		       strncmp(opt.scenario, "bad-", 4) ? opt.scenario : "send";
	return scenario_run(which + 1);
}

/* One session on each of the first streams: set-up, what the scenario does, teardown. */
static bool drive(void)
{
	const char *scenario = opt.scenario;

	bool is_replied_to;

	for (int each = 0; each < opt.sessions; each++) {
		if (opt.is_active)
			session_initiate(&sessions[each]);
		else if (sessions[each].state == CLOSED)
			sessions[each].state = IDLE;
	}
	is_replied_to = step_until(is_replied, 0);
	if (strcmp(opt.expect, "abort") && strcmp(opt.expect, reply_name()))
		return false;
	if (sessions[0].state == REFUSED)
		return is_replied_to;
	last_chunk_ms = now_ms();
	if (!strcmp(opt.expect, "abort"))
		return (!is_replied_to || !scenario_run(0)) && transport.is_aborted;
	if (!is_replied_to || !scenario_run(0))
		return false;
	for (int each = 0; each < opt.sessions; each++)
		if (!tear_down(each))
			return false;
	opt.scenario = scenario;
	return step_until(is_quiet, 0) || sessions[0].state == CLOSED;
}

/* Breaks a rule; the peer must end the session, or the association. */
static bool drive_bad(void)
{
	bool is_set_up = strcmp(opt.bad, "segment-first");
	const char *reply;

	if (!is_set_up)
		rdmap_begin(&sessions[0]);
	else
		session_initiate(&sessions[0]);
	if (is_set_up && step_until(is_replied, 0) && sessions[0].state == ESTABLISHED) {
		if (!scenario_break())
			fail("no such --bad: %s", opt.bad);
	} else if (!is_set_up) {
		/* As in a session that was initiated, so that the Terminate is understood. */
		sessions[0].state = INITIATED;
		sessions[0].ssn_out = 1;
		scenario_break();
	}
	reply = transport.is_lost ? "abort" : sessions[0].peer_terminated || sessions[0].reply == TERMINATE ? "terminate" :
		sessions[0].reply && sessions[0].state != ESTABLISHED ? reply_name() : "none";
	report("reply", "\"bad\": \"%s\", \"reply\": \"%s\"", opt.bad, reply);
	return strcmp(opt.expect, "accept") ? !strcmp(opt.expect, reply) : !strcmp(reply, "abort") || !strcmp(reply, "terminate");
}

/* RFC 5043 s6.6: a stream is used again only when nothing of its old session is outstanding. */
static bool may_initiate(void)
{
	for (int each = 0; each < opt.sessions; each++)
		if (sessions[each].state != IDLE && sessions[each].state != CLOSED)
			return false;
	return is_quiet(0);
}

static bool is_idle(void)
{
	for (int each = 0; each < opt.streams; each++)
		if (sessions[each].state == INITIATED || sessions[each].state == ESTABLISHED)
			return false;
	return tally.sessions && now_ms() - last_chunk_ms > (uint64_t)opt.linger_s * 1000;
}

static bool respond(void)
{
	int rounds = 0;

	/* The driving end shuts the association down, unless it leaves it for other sessions. */
	while (!transport.is_lost && !is_idle()) {
		if (opt.is_active && rounds < opt.repeat && may_initiate()) {
			rounds++;
			for (int each = 0; each < opt.sessions; each++)
				session_initiate(&sessions[each]);
		}
		step(rounds < opt.repeat ? 10 : 100);
	}
	return !transport.is_aborted || !strcmp(opt.expect, "abort");
}

static void end_association(void)
{
	uint64_t until = now_ms() + END_MS;

	transport_shutdown();
	while (!transport.is_lost && now_ms() < until)
		step(20);
}

static bool run(void)
{
	bool passed = true;

	if (!transport.is_up) {
		report("refused", "\"aborted\": %s", transport.is_aborted ? "true" : "false");
		return opt.bad || !strcmp(opt.expect, "abort");
	}
	report("association", "\"indication\": %s, \"value\": %u, \"streams_in\": %u, \"streams_out\": %u, \"chunk_max\": %zu, "
	       "\"peer_addresses\": %d", transport.has_indication ? "true" : "false", transport.indication,
	       transport.streams_in, transport.streams_out, transport_chunk_max(), transport_addresses());
	if (!transport.has_indication || transport.indication != INDICATION_DDP) {
		/* RFC 5043 s11.1, s7.1: nothing of DDP is done, and the association ends. */
		violation(0, "indication");
		transport_abort();
		return true;
	}
	if (transport.streams_in != transport.streams_out)
		violation(0, "streams");
	if (transport.streams_in < opt.streams)
		opt.streams = transport.streams_in;
	if (opt.sessions > opt.streams)
		fail("%d sessions, and only %d streams", opt.sessions, opt.streams);
	if (opt.responds)
		passed = respond();
	else if (opt.bad)
		passed = drive_bad();
	else
		for (int each = 0; each < opt.repeat && passed; each++)
			passed = drive();
	return passed;
}

static bool is_as_expected(void)
{
	if (opt.expect_violation)
		return tally.violation && !strcmp(tally.violation, opt.expect_violation);
	return !tally.violations && !tally.bad_bytes;
}

/* ---- options ---- */

static int split(char *list, char **to)
{
	int count = 0;

	for (char *rest = NULL, *each = strtok_r(list, ",", &rest); each && count < ADDRESSES_MAX;
	     each = strtok_r(NULL, ",", &rest))
		to[count++] = each;
	return count;
}

static void __attribute__((noreturn)) refuse(const char *what)
{
	fprintf(stderr, "%s\n%s", what, usage);
	exit(2);
}

static int number(const char *name, const char *value, long least, long most)
{
	char *end, text[128];
	long found = strtol(value, &end, 10);

	if (*end || end == value || found < least || found > most) {
		snprintf(text, sizeof text, "--%s %.20s: allowed are %ld to %ld", name, value, least, most);
		refuse(text);
	}
	return (int)found;
}

static int rtr_kinds(const char *letters)
{
	return (strchr(letters, 's') ? RTR_SEND : 0) | (strchr(letters, 'w') ? RTR_WRITE : 0) | (strchr(letters, 'r') ? RTR_READ : 0);
}

static void read_options(int argc, char **argv)
{
	enum { LOCAL = 256, REMOTE, SCENARIO, BAD, EXPECT, VIOLATION, REFUSE, PRIVATE, RTR, START, AWAIT, ENHANCED, PEER, NUMBER };
	static const struct { const char *name; int *value; long least, most; } numbers[] = {
		{ "port", &opt.port, 1, 65535 }, { "local-port", &opt.local_port, 0, 65535 }, { "udp-encap", &opt.udp_encap, 1, 65535 },
		{ "streams", &opt.streams, 1, STREAMS_MAX }, { "sessions", &opt.sessions, 1, STREAMS_MAX },
		{ "repeat", &opt.repeat, 1, 100000 }, { "shuffle", &opt.shuffle, 1, STAGED_MAX - 2 },
		{ "segment-max", &opt.segment_max, 64, CHUNK_MAX / 2 }, { "size", &opt.size, 0, 1 << 24 },
		{ "count", &opt.count, 1, 1 << 24 }, { "depth", &opt.depth, 1, 64 }, { "bytes", &opt.bytes, 8, 1 << 28 },
		{ "message-bytes", &opt.message_bytes, 1, 1 << 28 }, { "private-bytes", &opt.private_bytes, 0, PRIVATE_MAX },
		{ "duration", &opt.duration_s, 0, 86400 }, { "limit", &opt.limit_s, 1, 86400 }, { "linger", &opt.linger_s, 1, 86400 }, { "ird", &opt.ird, 0, DEPTH_UNSET },
		{ "ord", &opt.ord, 0, DEPTH_UNSET }, { "require-ord", &opt.require_ord, 0, DEPTH_UNSET },
		{ "rto-min", &opt.rto_min_ms, 10, 60000 }, { "path-max-retrans", &opt.path_max_retrans, 1, 10 },
		{ "heartbeat", &opt.heartbeat_ms, 50, 60000 },
	};
	enum { NUMBERS = sizeof numbers / sizeof *numbers };
	struct option names[NUMBERS + 14] = {
		{ "local", 1, NULL, LOCAL }, { "remote", 1, NULL, REMOTE }, { "scenario", 1, NULL, SCENARIO }, { "bad", 1, NULL, BAD },
		{ "expect", 1, NULL, EXPECT }, { "expect-violation", 1, NULL, VIOLATION }, { "reject", 1, NULL, REFUSE },
		{ "private", 1, NULL, PRIVATE }, { "rtr", 1, NULL, RTR }, { "initiate", 0, NULL, START }, { "await", 0, NULL, AWAIT },
		{ "enhanced", 0, NULL, ENHANCED }, { "peer-to-peer", 0, NULL, PEER },
	};
	int initiates = -1;

	for (int each = 0; each < NUMBERS; each++)
		names[13 + each] = (struct option){ numbers[each].name, 1, NULL, NUMBER + each };
	for (int letter; (letter = getopt_long(argc, argv, "", names, NULL)) != -1;) {
		switch (letter) {
		case LOCAL: opt.locals = split(optarg, opt.local); break;
		case REMOTE: opt.remotes = split(optarg, opt.remote); break;
		case SCENARIO: opt.scenario = optarg; break;
		case BAD: opt.bad = optarg; break;
		case EXPECT: opt.expect = optarg; break;
		case VIOLATION: opt.expect_violation = optarg; break;
		case REFUSE: opt.reject = optarg; break;
		case PRIVATE: opt.private_text = optarg; break;
		case RTR: opt.rtr = rtr_kinds(optarg); break;
		case START: initiates = 1; break;
		case AWAIT: initiates = 0; break;
		case ENHANCED: opt.enhanced = true; break;
		case PEER: opt.enhanced = opt.peer_to_peer = true; break;
		case '?': refuse("");
		default:
			*numbers[letter - NUMBER].value = number(numbers[letter - NUMBER].name, optarg, numbers[letter - NUMBER].least,
								 numbers[letter - NUMBER].most);
		}
	}
	if (optind + 1 != argc || (strcmp(argv[optind], "serve") && strcmp(argv[optind], "connect")))
		refuse("serve or connect is needed");
	opt.serves = !strcmp(argv[optind], "serve");
	opt.is_active = initiates < 0 ? !opt.serves : initiates;
	opt.responds = !strcmp(opt.scenario, "respond");
	if (!opt.locals || (!opt.serves && !opt.remotes))
		refuse("--local is needed, and --remote to connect");
	if (strlen(opt.private_text) > 256)
		refuse("--private takes 256 octets at most");
	if (opt.sessions > opt.streams)
		opt.streams = opt.sessions;
}

int main(int argc, char **argv)
{
	bool passed, has_gap = false;

	read_options(argc, argv);
	for (int each = 0; each < STREAMS_MAX; each++)
		sessions[each].stream = (uint16_t)each;
	transport_start();
	if (opt.serves) {
		transport_listen();
		report("listening", "\"port\": %d", opt.port);
		transport_accept();
	} else {
		transport_connect();
	}
	passed = run();
	end_association();
	for (int each = 0; each < STREAMS_MAX; each++) {
		has_gap |= sessions[each].held && !sessions[each].is_broken;
		session_release(&sessions[each]);
	}
	passed = passed && is_as_expected() && !has_gap;
	report("result", "\"ok\": %s, \"scenario\": \"%s\", \"bad_bytes\": %u, \"violations\": %u, \"strays\": %u, \"gap\": %s, "
	       "\"sessions\": %u, \"chunks_in\": %u, \"chunks_out\": %u, \"ppid_16_in\": %u, \"ppid_17_in\": %u, "
	       "\"out_of_order\": %u, \"held_max\": %u, \"sends_in\": %u, \"writes_in\": %u, \"reads_in\": %u, "
	       "\"atomics_in\": %u, \"terminates_in\": %u, \"terminates_out\": %u, \"path_events\": %d, \"stall_ms\": %llu, "
	       "\"aborted\": %s", passed ? "true" : "false", opt.scenario, tally.bad_bytes, tally.violations, tally.strays,
	       has_gap ? "true" : "false", tally.sessions, tally.chunks_in, tally.chunks_out, tally.segments_in,
	       tally.controls_in, tally.out_of_order, tally.held_max, tally.sends_in, tally.writes_in, tally.reads_in,
	       tally.atomics_in, tally.terminates_in, tally.terminates_out, transport.path_events,
	       (unsigned long long)stall_ms, transport.is_aborted ? "true" : "false");
	transport_stop();
	return passed ? 0 : 1;
}

/*
 * The guest's verbs program: one end of RDMA connections over siw, which does operations at the other end and compares
 * every byte. The other end is an iwarp-responder: it tells in its private data where its memory is (steering tag 4 bytes,
 * tagged offset 8, length 4, big-endian), echoes Sends, and answers Writes and Reads.
 *
 * Prints one line a failure on standard error. Exit codes: 0 all as it should be, 1 not, 2 bad arguments.
 */
#include <arpa/inet.h>
#include <endian.h>
#include <errno.h>
#include <getopt.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

#define LIMIT_MS 30000
#define QPS_MAX 256
/* Receives that an iwarp-responder has posted unless told otherwise. */
#define DEPTH_MAX 32

struct options {
	const char *role, *address, *operation, *private_data, *expect_private;
	int port, size, count, depth, qps, ird, ord, private_bytes;
	int unsignaled, reject, expect_reject, stay, await_close, expect_error;
};

/* A connection: its queue pair, its memory in `depth` slots to send from and as many to receive to, and the far end's. */
struct peer {
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	unsigned char *memory;
	uint32_t rkey;
	uint64_t remote;
	uint32_t remote_bytes;
};

static struct options opt = {
	.operation = "none", .port = 4791, .size = 64, .count = 1, .depth = 1, .qps = 1, .ird = 16, .ord = 16,
	.private_bytes = -1,
};

static void fail(const char *form, ...)
{
	va_list list;

	va_start(list, form);
	vfprintf(stderr, form, list);
	va_end(list);
	fprintf(stderr, "\n");
	exit(1);
}

static void must(int result, const char *what)
{
	if (result)
		fail("%s: %s", what, strerror(result > 0 ? result : errno));
}

/* A byte of the text that message `number` has: no two messages and no two places look alike. */
static unsigned char letter(int number, int at)
{
	return (unsigned char)(at * 31 + (at >> 8) * 7 + number * 113 + 1);
}

static unsigned char *source(struct peer *p, int slot)
{
	return p->memory + (size_t)slot * opt.size;
}

static unsigned char *sink(struct peer *p, int slot)
{
	return p->memory + (size_t)(opt.depth + slot) * opt.size;
}

static void write_text(unsigned char *text, int number)
{
	for (int at = 0; at < opt.size; at++)
		text[at] = letter(number, at);
}

static void compare(const unsigned char *text, int number)
{
	for (int at = 0; at < opt.size; at++)
		if (text[at] != letter(number, at))
			fail("byte %d of message %d is %02x, not %02x", at, number, text[at], letter(number, at));
}

static struct rdma_cm_event *next_event(struct rdma_event_channel *channel)
{
	struct pollfd fd = { .fd = channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;

	if (poll(&fd, 1, LIMIT_MS) != 1)
		fail("no connection event for %d s", LIMIT_MS / 1000);
	must(rdma_get_cm_event(channel, &event), "rdma_get_cm_event");
	return event;
}

static struct rdma_cm_event *expect(struct rdma_event_channel *channel, enum rdma_cm_event_type wanted)
{
	struct rdma_cm_event *event = next_event(channel);

	if (event->event != wanted)
		fail("event %s, status %d, where %s was to come", rdma_event_str(event->event), event->status,
		     rdma_event_str(wanted));
	return event;
}

static void post_receive(struct peer *p, int slot)
{
	struct ibv_sge sge = { (uintptr_t)sink(p, slot), opt.size, p->mr->lkey };
	struct ibv_recv_wr wr = { .wr_id = slot, .sg_list = &sge, .num_sge = 1 }, *bad;

	must(ibv_post_recv(p->id->qp, &wr, &bad), "ibv_post_recv");
}

static void create_qp(struct peer *p, struct rdma_cm_id *id)
{
	/* One for all connections, which have their turns one after the other; siw has no room for a queue each. */
	static struct ibv_pd *pd;
	static struct ibv_cq *cq;
	size_t bytes = 2 * (size_t)opt.depth * opt.size;
	struct ibv_qp_init_attr attr = {
		.cap = { .max_send_wr = opt.depth + 2, .max_recv_wr = opt.depth + 2, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};

	p->id = id;
	p->pd = pd ? pd : (pd = ibv_alloc_pd(id->verbs));
	if (!p->pd)
		fail("ibv_alloc_pd: %s", strerror(errno));
	p->cq = cq ? cq : (cq = ibv_create_cq(id->verbs, opt.qps * (2 * opt.depth + 4), NULL, NULL, 0));
	if (!p->cq)
		fail("ibv_create_cq: %s", strerror(errno));
	if (posix_memalign((void **)&p->memory, 4096, bytes ? bytes : 1))
		fail("no memory");
	memset(p->memory, 0, bytes);
	/* Read sinks need the right to be written on iWARP. */
	p->mr = ibv_reg_mr(p->pd, p->memory, bytes ? bytes : 1,
			   IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ);
	if (!p->mr)
		fail("ibv_reg_mr: %s", strerror(errno));
	attr.send_cq = attr.recv_cq = p->cq;
	must(rdma_create_qp(id, p->pd, &attr), "rdma_create_qp");
	for (int slot = 0; slot < opt.depth; slot++)
		post_receive(p, slot);
}

/* Where the far end's memory is. */
static void read_private_data(struct peer *p, const struct rdma_conn_param *param)
{
	const unsigned char *data = param->private_data;
	uint32_t word;
	uint64_t offset;

	if (opt.expect_private && (param->private_data_len < strlen(opt.expect_private) ||
				   memcmp(data, opt.expect_private, strlen(opt.expect_private))))
		fail("private data of %d bytes is not as expected", param->private_data_len);
	if (param->private_data_len < 16)
		return;
	memcpy(&word, data, 4);
	p->rkey = ntohl(word);
	memcpy(&offset, data + 4, 8);
	p->remote = be64toh(offset);
	memcpy(&word, data + 12, 4);
	p->remote_bytes = ntohl(word);
}

static struct rdma_conn_param conn_param(void)
{
	static char filler[256];
	struct rdma_conn_param param = { .responder_resources = opt.ird, .initiator_depth = opt.ord, .retry_count = 7 };

	memset(filler, 'p', sizeof filler);
	param.private_data = opt.private_data ? opt.private_data : filler;
	param.private_data_len = opt.private_bytes >= 0 ? opt.private_bytes :
				 opt.private_data ? (int)strlen(opt.private_data) : 0;
	return param;
}

static void connect_peer(struct peer *p)
{
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(opt.port) };
	struct rdma_conn_param param = conn_param();
	struct rdma_cm_event *event;
	struct rdma_cm_id *id;

	if (!channel || inet_pton(AF_INET, opt.address, &to.sin_addr) != 1)
		fail("no event channel, or no address: %s", opt.address);
	must(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 10000), "rdma_resolve_addr");
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ADDR_RESOLVED));
	must(rdma_resolve_route(id, 10000), "rdma_resolve_route");
	rdma_ack_cm_event(expect(channel, RDMA_CM_EVENT_ROUTE_RESOLVED));
	create_qp(p, id);
	must(rdma_connect(id, &param), "rdma_connect");
	if (opt.expect_reject) {
		event = expect(channel, RDMA_CM_EVENT_REJECTED);
		read_private_data(p, &event->param.conn);
		exit(0);
	}
	event = expect(channel, RDMA_CM_EVENT_ESTABLISHED);
	read_private_data(p, &event->param.conn);
	rdma_ack_cm_event(event);
}

/* Answers a request: with a queue pair, or by a refusal. */
static void accept_peer(struct peer *p, struct rdma_cm_event *event)
{
	struct rdma_conn_param param = conn_param();

	read_private_data(p, &event->param.conn);
	if (opt.reject) {
		must(rdma_reject(event->id, param.private_data, param.private_data_len), "rdma_reject");
		return;
	}
	create_qp(p, event->id);
	must(rdma_accept(event->id, &param), "rdma_accept");
}

/* Answers as many as are to come, in whatever order they come and get up. */
static void accept_all(struct peer *peers, struct rdma_cm_id *listener)
{
	int asked = 0, up = 0;

	while (up < opt.qps) {
		struct rdma_cm_event *event = next_event(listener->channel);

		if (event->event == RDMA_CM_EVENT_CONNECT_REQUEST && asked < opt.qps)
			accept_peer(&peers[asked++], event);
		else if (event->event == RDMA_CM_EVENT_ESTABLISHED)
			up++;
		else
			fail("event %s, status %d, while connections were made", rdma_event_str(event->event), event->status);
		up += opt.reject;
		rdma_ack_cm_event(event);
	}
}

static struct rdma_cm_id *listen_at(void)
{
	struct sockaddr_in local = { .sin_family = AF_INET, .sin_port = htons(opt.port) };
	struct rdma_event_channel *channel = rdma_create_event_channel();
	struct rdma_cm_id *listener;

	must(rdma_create_id(channel, &listener, NULL, RDMA_PS_TCP), "rdma_create_id");
	must(rdma_bind_addr(listener, (struct sockaddr *)&local), "rdma_bind_addr");
	must(rdma_listen(listener, QPS_MAX), "rdma_listen");
	return listener;
}

/* Posts a request of message `number`; an operation that siw does not know fails here. */
static void post(struct peer *p, enum ibv_wr_opcode opcode, int number, int signaled, int flags)
{
	int slot = number % opt.depth;
	unsigned char *place = opcode == IBV_WR_RDMA_READ ? sink(p, slot) : source(p, slot);
	struct ibv_sge sge = { (uintptr_t)place, opt.size, p->mr->lkey };
	struct ibv_send_wr wr = {
		.wr_id = DEPTH_MAX * 64 + number, .sg_list = &sge, .num_sge = opt.size ? 1 : 0, .opcode = opcode,
		.send_flags = flags | (signaled ? IBV_SEND_SIGNALED : 0),
	}, *bad;

	wr.wr.rdma.remote_addr = p->remote;
	wr.wr.rdma.rkey = p->rkey;
	if (opcode == IBV_WR_SEND_WITH_INV)
		wr.invalidate_rkey = p->rkey;
	must(ibv_post_send(p->id->qp, &wr, &bad), "ibv_post_send");
}

/* The next completion. Waits with a limit, in small naps: the guest's processors are the emulator's threads. */
static struct ibv_wc completion(struct peer *p)
{
	struct ibv_wc wc;
	int found;

	for (int naps = 0; !(found = ibv_poll_cq(p->cq, 1, &wc)); naps++) {
		if (naps > LIMIT_MS * 10)
			fail("no completion for %d s", LIMIT_MS / 1000);
		usleep(50);
	}
	if (found < 0)
		fail("ibv_poll_cq");
	if (wc.status != IBV_WC_SUCCESS) {
		if (opt.expect_error)
			exit(0);
		fail("completion of %s: %s", wc.wr_id >= DEPTH_MAX * 64 ? "a request" : "a receive",
		     ibv_wc_status_str(wc.status));
	}
	return wc;
}

/* Every Send comes back. At most `depth` are under way. */
static void do_sends(struct peer *p, enum ibv_wr_opcode opcode, int flags)
{
	int posted = 0, echoed = 0, sent = 0;

	while (echoed < opt.count || sent < opt.count) {
		struct ibv_wc wc;

		while (posted < opt.count && posted - echoed < opt.depth && posted - sent < opt.depth) {
			write_text(source(p, posted % opt.depth), posted);
			post(p, opcode, posted++, 1, flags);
		}
		wc = completion(p);
		if (wc.wr_id >= DEPTH_MAX * 64) {
			sent++;
			continue;
		}
		if ((int)wc.byte_len != opt.size)
			fail("an echo of %u bytes, not %d", wc.byte_len, opt.size);
		compare(sink(p, wc.wr_id), echoed++);
		post_receive(p, wc.wr_id);
	}
}

/* Writes messages over one another, `depth` at a time, then reads what must be the last of each. */
static void do_writes(struct peer *p)
{
	for (int done = 0; done < opt.count; done += opt.depth) {
		for (int slot = 0; slot < opt.depth; slot++) {
			write_text(source(p, slot), done + slot);
			post(p, IBV_WR_RDMA_WRITE, done + slot, !opt.unsignaled, 0);
		}
		for (int slot = 0; !opt.unsignaled && slot < opt.depth; slot++)
			completion(p);
		memset(sink(p, 0), 0, opt.size);
		post(p, IBV_WR_RDMA_READ, 0, 1, 0);
		completion(p);
		compare(sink(p, 0), done + opt.depth - 1);
	}
}

/* Writes a message and reads it, `depth` times at once. */
static void do_reads(struct peer *p)
{
	write_text(source(p, 0), 7);
	post(p, IBV_WR_RDMA_WRITE, 0, 1, 0);
	completion(p);
	for (int done = 0; done < opt.count; done += opt.depth) {
		memset(sink(p, 0), 0, (size_t)opt.depth * opt.size);
		for (int slot = 0; slot < opt.depth; slot++)
			post(p, IBV_WR_RDMA_READ, slot, 1, 0);
		for (int slot = 0; slot < opt.depth; slot++)
			completion(p);
		for (int slot = 0; slot < opt.depth; slot++)
			compare(sink(p, slot), 7);
	}
}

static void run_operation(struct peer *p)
{
	if ((!strcmp(opt.operation, "write") || !strcmp(opt.operation, "read")) && p->remote_bytes < (uint32_t)opt.size)
		fail("the far end offers %u bytes", p->remote_bytes);
	if (!strcmp(opt.operation, "send"))
		do_sends(p, IBV_WR_SEND, 0);
	else if (!strcmp(opt.operation, "send-se"))
		do_sends(p, IBV_WR_SEND, IBV_SEND_SOLICITED);
	else if (!strcmp(opt.operation, "send-inv"))
		do_sends(p, IBV_WR_SEND_WITH_INV, 0);
	else if (!strcmp(opt.operation, "write"))
		do_writes(p);
	else if (!strcmp(opt.operation, "read"))
		do_reads(p);
}

/* Either end may close; the end of the connection is printed in both cases. */
static void disconnect_peer(struct peer *p)
{
	struct rdma_cm_event *event;

	if (!opt.await_close)
		must(rdma_disconnect(p->id), "rdma_disconnect");
	event = expect(p->id->channel, RDMA_CM_EVENT_DISCONNECTED);
	rdma_ack_cm_event(event);
}

static void read_options(int argc, char **argv)
{
	static const struct option names[] = {
		{ "port", 1, NULL, 'p' }, { "operation", 1, NULL, 'o' }, { "size", 1, NULL, 's' }, { "count", 1, NULL, 'n' },
		{ "depth", 1, NULL, 'd' }, { "qps", 1, NULL, 'q' }, { "ird", 1, NULL, 'i' }, { "ord", 1, NULL, 'r' },
		{ "private", 1, NULL, 'P' }, { "private-bytes", 1, NULL, 'B' }, { "expect-private", 1, NULL, 'E' },
		{ "unsignaled", 0, &opt.unsignaled, 1 }, { "reject", 0, &opt.reject, 1 },
		{ "expect-reject", 0, &opt.expect_reject, 1 }, { "stay", 0, &opt.stay, 1 },
		{ "await-close", 0, &opt.await_close, 1 }, { "expect-error", 0, &opt.expect_error, 1 }, { 0 },
	};
	int letter;

	while ((letter = getopt_long(argc, argv, "", names, NULL)) != -1) {
		switch (letter) {
		case 0: break;
		case 'p': opt.port = atoi(optarg); break;
		case 'o': opt.operation = optarg; break;
		case 's': opt.size = atoi(optarg); break;
		case 'n': opt.count = atoi(optarg); break;
		case 'd': opt.depth = atoi(optarg); break;
		case 'q': opt.qps = atoi(optarg); break;
		case 'i': opt.ird = atoi(optarg); break;
		case 'r': opt.ord = atoi(optarg); break;
		case 'P': opt.private_data = optarg; break;
		case 'B': opt.private_bytes = atoi(optarg); break;
		case 'E': opt.expect_private = optarg; break;
		default: exit(2);
		}
	}
	opt.role = optind < argc ? argv[optind] : "";
	opt.address = optind + 1 < argc ? argv[optind + 1] : NULL;
	if (opt.depth < 1 || opt.depth > DEPTH_MAX || opt.qps < 1 || opt.qps > QPS_MAX ||
	    (strcmp(opt.role, "listen") && (strcmp(opt.role, "connect") || !opt.address))) {
		fprintf(stderr, "usage: peer [options] listen | connect ADDRESS\n");
		exit(2);
	}
}

int main(int argc, char **argv)
{
	static struct peer peers[QPS_MAX];
	struct rdma_cm_id *listener;
	int calls;

	read_options(argc, argv);
	calls = !strcmp(opt.role, "connect");
	listener = calls ? NULL : listen_at();
	for (int each = 0; calls && each < opt.qps; each++)
		connect_peer(&peers[each]);
	if (!calls)
		accept_all(peers, listener);
	if (opt.reject)
		return 0;
	for (int each = 0; each < opt.qps; each++)
		run_operation(&peers[each]);
	if (opt.stay) {
		puts("staying");
		fflush(stdout);
		pause();
	}
	for (int each = 0; each < opt.qps; each++)
		disconnect_peer(&peers[each]);
	return 0;
}

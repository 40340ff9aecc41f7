/*
 * One SCTP association over Debian's usrsctp, which sends packets of protocol 132 through a raw socket, or UDP (RFC 6951).
 * With -DKERNEL_SCTP it uses the kernel's sockets instead: the calls of RFC 6458 are the same but for their prefix.
 *
 * Failures of calls end the program. The loss of the association is a state, which the caller judges.
 */
#include "peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#ifdef KERNEL_SCTP
#include <fcntl.h>
#include <netinet/sctp.h>
#include <poll.h>
#include <signal.h>
#include <sys/uio.h>
typedef int handle;
#define NO_HANDLE (-1)
#define CALL(name) name
#else
#include <usrsctp.h>
typedef struct socket *handle;
#define NO_HANDLE NULL
#define CALL(name) usrsctp_##name
#endif

/* The send buffer bounds the chunks without a TSN well below the 32767 of RFC 5043 s10. */
#define SEND_BUFFER (256 * 1024)
#define RECEIVE_BUFFER (1024 * 1024)
/* A DATA chunk's header is 16 octets; a SACK with four gap blocks is 32. */
#define SACK_ROOM 32
/* Time for the adaptation indication to follow the notification that the association is up. */
#define INDICATION_MS 200

struct transport transport;
static handle listener = NO_HANDLE, socket_handle = NO_HANDLE;
static uint8_t buffer[CHUNK_MAX];

/* ---- where usrsctp and the kernel differ ---- */

#ifdef KERNEL_SCTP
static void wait_readable(handle from, int timeout_ms)
{
	struct pollfd fd = { .fd = from, .events = POLLIN };

	poll(&fd, 1, timeout_ms);
}

static handle open_socket(int family)
{
	handle made = socket(family, SOCK_STREAM, IPPROTO_SCTP);

	if (made != NO_HANDLE)
		fcntl(made, F_SETFL, O_NONBLOCK);
	return made;
}

static handle accept_socket(handle from)
{
	handle made = accept(from, NULL, NULL);

	if (made != NO_HANDLE)
		fcntl(made, F_SETFL, O_NONBLOCK);
	return made;
}

static ssize_t receive_message(struct sctp_rcvinfo *info, int *flags)
{
	struct iovec part = { buffer, sizeof buffer };
	struct sockaddr_storage from;
	socklen_t from_length = sizeof from, info_length = sizeof *info;
	unsigned type = 0;

	return sctp_recvv(socket_handle, &part, 1, (struct sockaddr *)&from, &from_length, info, &info_length, &type, flags);
}

static ssize_t send_message(const uint8_t *data, size_t length, struct sctp_sndinfo *info)
{
	struct iovec part = { (void *)(uintptr_t)data, length };

	return sctp_sendv(socket_handle, &part, 1, NULL, 0, info, sizeof *info, SCTP_SENDV_SNDINFO, 0);
}

void transport_start(void)
{
	/* A send behind the end of the association is an error with a number. */
	signal(SIGPIPE, SIG_IGN);
}

void transport_stop(void)
{
	if (socket_handle != NO_HANDLE)
		close(socket_handle);
	if (listener != NO_HANDLE)
		close(listener);
}
#else
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t readable = PTHREAD_COND_INITIALIZER;
static bool is_readable;

/* Runs in usrsctp's threads. */
static void on_event(struct socket *from, void *argument, int flags)
{
	(void)from, (void)argument, (void)flags;
	pthread_mutex_lock(&lock);
	is_readable = true;
	pthread_cond_signal(&readable);
	pthread_mutex_unlock(&lock);
}

static void wait_readable(handle from, int timeout_ms)
{
	struct timespec until;

	(void)from;
	clock_gettime(CLOCK_REALTIME, &until);
	until.tv_sec += timeout_ms / 1000;
	until.tv_nsec += timeout_ms % 1000 * 1000000L;
	if (until.tv_nsec >= 1000000000L) {
		until.tv_sec++;
		until.tv_nsec -= 1000000000L;
	}
	pthread_mutex_lock(&lock);
	while (!is_readable && pthread_cond_timedwait(&readable, &lock, &until) != ETIMEDOUT)
		;
	is_readable = false;
	pthread_mutex_unlock(&lock);
}

static handle open_socket(int family)
{
	handle made = usrsctp_socket(family, SOCK_STREAM, IPPROTO_SCTP, NULL, NULL, 0, NULL);

	if (made) {
		usrsctp_set_non_blocking(made, 1);
		usrsctp_set_upcall(made, on_event, NULL);
	}
	return made;
}

static handle accept_socket(handle from)
{
	handle made = usrsctp_accept(from, NULL, NULL);

	if (made) {
		usrsctp_set_non_blocking(made, 1);
		usrsctp_set_upcall(made, on_event, NULL);
	}
	return made;
}

static ssize_t receive_message(struct sctp_rcvinfo *info, int *flags)
{
	struct sockaddr_storage from;
	socklen_t from_length = sizeof from, info_length = sizeof *info;
	unsigned type = 0;

	return usrsctp_recvv(socket_handle, buffer, sizeof buffer, (struct sockaddr *)&from, &from_length, info, &info_length,
			     &type, flags);
}

static ssize_t send_message(const uint8_t *data, size_t length, struct sctp_sndinfo *info)
{
	return usrsctp_sendv(socket_handle, data, length, NULL, 0, info, sizeof *info, SCTP_SENDV_SNDINFO, 0);
}

void transport_start(void)
{
	usrsctp_init((uint16_t)opt.udp_encap, NULL, NULL);
	usrsctp_sysctl_set_sctp_no_csum_on_loopback(0);
	usrsctp_sysctl_set_sctp_blackhole(2);
	/* RFC 5043 uses none of these. */
	usrsctp_sysctl_set_sctp_asconf_enable(0);
	usrsctp_sysctl_set_sctp_auth_enable(0);
	usrsctp_sysctl_set_sctp_pr_enable(0);
	usrsctp_sysctl_set_sctp_reconfig_enable(0);
	usrsctp_sysctl_set_sctp_nrsack_enable(0);
	usrsctp_sysctl_set_sctp_pktdrop_enable(0);
}

void transport_stop(void)
{
	if (socket_handle)
		usrsctp_close(socket_handle);
	if (listener)
		usrsctp_close(listener);
	/* It refuses while a closed association lives. */
	for (int tries = 0; usrsctp_finish() && tries < 30; tries++)
		usleep(100000);
}
#endif

/* ---- set-up ---- */

static void set(handle of, int option, const void *value, socklen_t length, const char *name)
{
	if (CALL(setsockopt)(of, IPPROTO_SCTP, option, value, length))
		fail("%s: %s", name, strerror(errno));
}
#define SET(of, option, value) set(of, option, &(value), sizeof(value), #option)

/* Writes addresses one behind the other, as bindx and connectx want them. */
static int pack(char *const *texts, int count, int port, void *packed, int *family)
{
	uint8_t *at = packed;

	for (int each = 0; each < count; each++) {
		struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
		struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)port) };

		if (inet_pton(AF_INET, texts[each], &four.sin_addr) == 1) {
			memcpy(at, &four, sizeof four);
			at += sizeof four;
		} else if (inet_pton(AF_INET6, texts[each], &six.sin6_addr) == 1) {
			memcpy(at, &six, sizeof six);
			at += sizeof six;
			*family = AF_INET6;
		} else {
			fail("no address: %s", texts[each]);
		}
	}
	return count;
}

static handle endpoint(int port)
{
	uint8_t addresses[ADDRESSES_MAX * sizeof(struct sockaddr_in6)];
	static const int events[] = { SCTP_ASSOC_CHANGE, SCTP_PEER_ADDR_CHANGE, SCTP_SHUTDOWN_EVENT, SCTP_ADAPTATION_INDICATION };
	/* RFC 5043 s8: as many streams in as out. */
	struct sctp_initmsg init = { .sinit_num_ostreams = (uint16_t)opt.streams, .sinit_max_instreams = (uint16_t)opt.streams };
	struct sctp_rtoinfo rto = { .srto_initial = 1000, .srto_max = 10000, .srto_min = (uint32_t)opt.rto_min_ms };
	struct sctp_paddrparams path = { .spp_hbinterval = (uint32_t)opt.heartbeat_ms, .spp_flags = SPP_HB_ENABLE,
					 .spp_pathmaxrxt = (uint16_t)opt.path_max_retrans };
	/* RFC 9260 s8.1, s8.2: more for the association than for a path, so that another path may take over. */
	struct sctp_assocparams all = { .sasoc_asocmaxrxt = (uint16_t)(opt.path_max_retrans + 4) };
	struct sctp_setadaptation indication = { INDICATION_DDP };
	int family = AF_INET, yes = 1, count, space = SEND_BUFFER;
	handle made;

	count = pack(opt.local, opt.locals, port, addresses, &family);
	made = open_socket(family);
	if (made == NO_HANDLE)
		fail("socket: %s", strerror(errno));
	for (size_t each = 0; each < sizeof events / sizeof *events; each++) {
		struct sctp_event event = { .se_assoc_id = SCTP_FUTURE_ASSOC, .se_type = (uint16_t)events[each], .se_on = 1 };

		SET(made, SCTP_EVENT, event);
	}
	SET(made, SCTP_INITMSG, init);
	SET(made, SCTP_RTOINFO, rto);
	SET(made, SCTP_PEER_ADDR_PARAMS, path);
	SET(made, SCTP_ASSOCINFO, all);
	SET(made, SCTP_NODELAY, yes);
	SET(made, SCTP_RECVRCVINFO, yes);
	SET(made, SCTP_DISABLE_FRAGMENTS, yes);
	if (opt.bad && !strcmp(opt.bad, "other-indication"))
		indication.ssb_adaptation_ind = 0x49575250;
	if (!opt.bad || strcmp(opt.bad, "no-indication"))
		SET(made, SCTP_ADAPTATION_LAYER, indication);
	if (opt.udp_encap) {
		struct sctp_udpencaps udp = { .sue_port = htons((uint16_t)opt.udp_encap) };

		udp.sue_address.ss_family = (sa_family_t)family;
		SET(made, SCTP_REMOTE_UDP_ENCAPS_PORT, udp);
	}
	if (CALL(setsockopt)(made, SOL_SOCKET, SO_SNDBUF, &space, sizeof space))
		fail("SO_SNDBUF: %s", strerror(errno));
	space = RECEIVE_BUFFER;
	if (CALL(setsockopt)(made, SOL_SOCKET, SO_RCVBUF, &space, sizeof space))
		fail("SO_RCVBUF: %s", strerror(errno));
#ifdef KERNEL_SCTP
	if (sctp_bindx(made, (struct sockaddr *)addresses, count, SCTP_BINDX_ADD_ADDR))
#else
	if (usrsctp_bindx(made, (struct sockaddr *)addresses, count, SCTP_BINDX_ADD_ADDR))
#endif
		fail("cannot bind to %s: %s", opt.local[0], strerror(errno));
	return made;
}

static void await_up(void)
{
	uint64_t until = now_ms() + (uint64_t)opt.limit_s * 1000;
	struct incoming chunk;

	while (!transport.is_up && !transport.is_lost && now_ms() < until)
		transport_receive(&chunk, 100);
	if (!transport.is_up && !transport.is_lost)
		fail("no association within %d s", opt.limit_s);
	until = now_ms() + INDICATION_MS;
	/* RFC 5043 s11.1: it is inspected before anything else is done. A chunk in front of it has none. */
	while (!transport.has_indication && !transport.is_lost && now_ms() < until && !transport_receive(&chunk, INDICATION_MS))
		;
}

void transport_listen(void)
{
	listener = endpoint(opt.port);
	if (CALL(listen)(listener, 8))
		fail("listen: %s", strerror(errno));
}

void transport_accept(void)
{
	uint64_t until = now_ms() + (uint64_t)opt.limit_s * 1000;

	while ((socket_handle = accept_socket(listener)) == NO_HANDLE) {
		if (errno != EWOULDBLOCK && errno != EAGAIN)
			fail("accept: %s", strerror(errno));
		if (now_ms() >= until)
			fail("no association within %d s", opt.limit_s);
		wait_readable(listener, 100);
	}
	await_up();
}

void transport_connect(void)
{
	uint8_t addresses[ADDRESSES_MAX * sizeof(struct sockaddr_in6)];
	int family = AF_INET, count, result;
	sctp_assoc_t id;

	socket_handle = endpoint(opt.local_port);
	count = pack(opt.remote, opt.remotes, opt.port, addresses, &family);
#ifdef KERNEL_SCTP
	result = sctp_connectx(socket_handle, (struct sockaddr *)addresses, count, &id);
#else
	result = usrsctp_connectx(socket_handle, (struct sockaddr *)addresses, count, &id);
#endif
	if (result && errno != EINPROGRESS)
		fail("cannot connect to %s: %s", opt.remote[0], strerror(errno));
	await_up();
}

/* ---- an association ---- */

static void on_path(const struct sctp_paddr_change *change)
{
	static const struct { uint32_t state; const char *name; } names[] = {
		{ SCTP_ADDR_AVAILABLE, "available" }, { SCTP_ADDR_UNREACHABLE, "unreachable" },
		{ SCTP_ADDR_CONFIRMED, "confirmed" }, { SCTP_ADDR_MADE_PRIM, "primary" },
	};
	char text[INET6_ADDRSTRLEN] = "";
	const char *name = "other";

	if (change->spc_aaddr.ss_family == AF_INET)
		inet_ntop(AF_INET, &((const struct sockaddr_in *)&change->spc_aaddr)->sin_addr, text, sizeof text);
	else if (change->spc_aaddr.ss_family == AF_INET6)
		inet_ntop(AF_INET6, &((const struct sockaddr_in6 *)&change->spc_aaddr)->sin6_addr, text, sizeof text);
	for (size_t each = 0; each < sizeof names / sizeof *names; each++)
		if ((uint32_t)change->spc_state == names[each].state)
			name = names[each].name;
	transport.path_events++;
	report("path", "\"address\": \"%s\", \"state\": \"%s\"", text, name);
}

static void on_notification(void)
{
	const union sctp_notification *n = (const void *)buffer;

	switch (n->sn_header.sn_type) {
	case SCTP_ASSOC_CHANGE:
		if (n->sn_assoc_change.sac_state == SCTP_COMM_UP) {
			transport.is_up = true;
			transport.streams_in = n->sn_assoc_change.sac_inbound_streams;
			transport.streams_out = n->sn_assoc_change.sac_outbound_streams;
		} else if (n->sn_assoc_change.sac_state != SCTP_RESTART) {
			transport.is_lost = true;
			transport.is_aborted |= n->sn_assoc_change.sac_state != SCTP_SHUTDOWN_COMP;
		}
		break;
	case SCTP_ADAPTATION_INDICATION:
		transport.has_indication = true;
		transport.indication = n->sn_adaptation_event.sai_adaptation_ind;
		break;
	case SCTP_PEER_ADDR_CHANGE:
		on_path(&n->sn_paddr_change);
		break;
	default:
		break;
	}
}

bool transport_receive(struct incoming *chunk, int timeout_ms)
{
	struct sctp_rcvinfo info = { 0 };
	int flags = 0;
	ssize_t length = transport.is_lost ? 0 : receive_message(&info, &flags);

	if (length < 0 && (errno == EWOULDBLOCK || errno == EAGAIN)) {
		if (!timeout_ms)
			return false;
		wait_readable(socket_handle, timeout_ms);
		flags = 0;
		length = receive_message(&info, &flags);
	}
	if (length < 0 && (errno == EWOULDBLOCK || errno == EAGAIN))
		return false;
	if (length <= 0) {
		/* A reset, or the end of a graceful shutdown without a notification. */
		transport.is_aborted |= length < 0 && !transport.is_lost;
		transport.is_lost = true;
		return false;
	}
	if (flags & MSG_NOTIFICATION) {
		on_notification();
		return false;
	}
	if (!(flags & MSG_EOR))
		fail("a chunk of more than %d octets", CHUNK_MAX);
	chunk->stream = info.rcv_sid;
	chunk->ppid = ntohl(info.rcv_ppid);
	chunk->length = (uint32_t)length;
	chunk->is_unordered = info.rcv_flags & SCTP_UNORDERED;
	chunk->data = buffer;
	return true;
}

bool transport_send(uint16_t stream, uint32_t ppid, bool is_unordered, const uint8_t *data, size_t length)
{
	struct sctp_sndinfo info = {
		.snd_sid = stream, .snd_ppid = htonl(ppid), .snd_flags = is_unordered ? SCTP_UNORDERED : 0,
	};

	if (transport.is_lost)
		return true;
	if (send_message(data, length, &info) >= 0)
		return true;
	if (errno == EWOULDBLOCK || errno == EAGAIN || errno == ENOBUFS)
		return false;
	/* The notification of what happened to the association follows. */
	if (errno == EPIPE || errno == ECONNRESET || errno == ENOTCONN || errno == ESHUTDOWN ||
	    errno == ENOENT)
		return true;
	fail("a chunk of %zu octets on stream %u: %s", length, stream, strerror(errno));
}

static struct sctp_status status(void)
{
	struct sctp_status found = { 0 };
	socklen_t length = sizeof found;

	if (CALL(getsockopt)(socket_handle, IPPROTO_SCTP, SCTP_STATUS, &found, &length))
		memset(&found, 0, sizeof found);
	return found;
}

unsigned transport_outstanding(void)
{
	struct sctp_status now = status();

	return now.sstat_unackdata + now.sstat_penddata;
}

size_t transport_chunk_max(void)
{
	size_t room = status().sstat_fragmentation_point;

	/* RFC 5043 s9: 516 octets at least, which hold a control message with all of its private data. */
	return room > SACK_ROOM + PRIVATE_MAX + 4 ? room - SACK_ROOM : PRIVATE_MAX + 4;
}

int transport_addresses(void)
{
	struct sockaddr *list = NULL;
#ifdef KERNEL_SCTP
	int count = sctp_getpaddrs(socket_handle, 0, &list);

	if (count > 0)
		sctp_freepaddrs(list);
#else
	int count = usrsctp_getpaddrs(socket_handle, 0, &list);

	if (count > 0)
		usrsctp_freepaddrs(list);
#endif
	return count;
}

void transport_shutdown(void)
{
	CALL(shutdown)(socket_handle, SHUT_WR);
}

void transport_abort(void)
{
	struct sctp_sndinfo info = { .snd_flags = SCTP_ABORT };

	send_message(buffer, 0, &info);
	transport.is_lost = true;
}

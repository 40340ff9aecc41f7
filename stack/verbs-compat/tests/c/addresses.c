/*
 * rdma_bind_addr, rdma_resolve_addr, rdma_resolve_route, rdma_listen, the ports, and rdma_getaddrinfo, against their manual
 * pages. Takes the device's address. Prints `addresses: N checks passed`.
 */
#define _GNU_SOURCE
#include <netdb.h>
#include <sys/wait.h>

#include "connect.h"

static struct sockaddr *generic(void *address) {
    return address;
}

static void check_binding(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = new_id(channel), *other = new_id(channel);
    struct sockaddr_in here = at(address, 7200), elsewhere = at("192.0.2.77", 7200), any = at("0.0.0.0", 7200);
    struct sockaddr unknown = {.sa_family = AF_UNIX};
    MINUS_ONE_WITH(rdma_bind_addr(id, generic(&elsewhere)), EADDRNOTAVAIL);
    MINUS_ONE_WITH(rdma_bind_addr(id, &unknown), EAFNOSUPPORT);
    MINUS_ONE_WITH(rdma_bind_addr(id, NULL), EINVAL);
    MINUS_ONE_WITH(rdma_bind_addr(NULL, generic(&here)), EINVAL);
    CHECK(!id->verbs && rdma_get_src_port(id) == 0);
    CHECK(rdma_bind_addr(id, generic(&here)) == 0 && id->verbs && id->pd && id->port_num == 1);
    CHECK(rdma_get_src_port(id) == htons(7200) && rdma_get_local_addr(id)->sa_family == AF_INET);
    CHECK(!memcmp(&((struct sockaddr_in *)rdma_get_local_addr(id))->sin_addr, &here.sin_addr, 4));
    MINUS_ONE_WITH(rdma_bind_addr(id, generic(&here)), EINVAL);
    /* In use: the address, and all addresses. What fails leaves the identifier unbound. */
    MINUS_ONE_WITH(rdma_bind_addr(other, generic(&here)), EADDRINUSE);
    MINUS_ONE_WITH(rdma_bind_addr(other, generic(&any)), EADDRINUSE);
    MINUS_ONE_WITH(rdma_resolve_addr(other, generic(&here), generic(&here), 1000), EADDRINUSE);
    CHECK(!other->verbs && rdma_get_src_port(other) == 0);
    CHECK(rdma_destroy_id(id) == 0 && rdma_bind_addr(other, generic(&any)) == 0);
    CHECK(!other->verbs && rdma_get_src_port(other) == htons(7200));
    CHECK(rdma_destroy_id(other) == 0);
    rdma_destroy_event_channel(channel);
}

static void check_reuse(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *one = new_id(channel), *two = new_id(channel);
    struct sockaddr_in here = at(address, 7201);
    int on = 1;
    CHECK(rdma_set_option(one, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
    CHECK(rdma_bind_addr(one, generic(&here)) == 0);
    MINUS_ONE_WITH(rdma_bind_addr(two, generic(&here)), EADDRINUSE);
    CHECK(rdma_set_option(two, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
    CHECK(rdma_bind_addr(two, generic(&here)) == 0);
    MINUS_ONE_WITH(rdma_listen(one, 1), EADDRINUSE);
    CHECK(rdma_destroy_id(two) == 0 && rdma_listen(one, 1) == 0);
    MINUS_ONE_WITH(rdma_listen(one, 1), EINVAL);
    CHECK(rdma_destroy_id(one) == 0);
    rdma_destroy_event_channel(channel);
}

/* Port 0: one is selected, and another for the next. */
static void check_selected_ports(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *ids[8];
    struct sockaddr_in here = at(address, 0);
    for (int one = 0; one < 8; one++) {
        ids[one] = new_id(channel);
        CHECK(rdma_bind_addr(ids[one], generic(&here)) == 0 && rdma_get_src_port(ids[one]) != 0);
        for (int other = 0; other < one; other++) CHECK(rdma_get_src_port(ids[other]) != rdma_get_src_port(ids[one]));
    }
    CHECK(rdma_listen(ids[0], 0) == 0);
    for (int one = 0; one < 8; one++) CHECK(rdma_destroy_id(ids[one]) == 0);
    /* Without an address: all of them, and a selected port. */
    struct rdma_cm_id *listener = new_id(channel);
    CHECK(rdma_listen(listener, 1) == 0 && rdma_get_src_port(listener) != 0 && rdma_destroy_id(listener) == 0);
    rdma_destroy_event_channel(channel);
}

static void check_resolution(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = new_id(channel);
    struct sockaddr_in here = at(address, 7202), elsewhere = at("192.0.2.77", 0);
    struct sockaddr_in6 other_family = {.sin6_family = AF_INET6, .sin6_port = htons(1)};
    MINUS_ONE_WITH(rdma_resolve_route(id, 1000), EINVAL);
    MINUS_ONE_WITH(rdma_resolve_addr(id, NULL, NULL, 1000), EINVAL);
    MINUS_ONE_WITH(rdma_resolve_addr(id, generic(&elsewhere), generic(&here), 1000), EADDRNOTAVAIL);
    MINUS_ONE_WITH(rdma_resolve_addr(id, generic(&other_family), generic(&here), 1000), EINVAL);
    /* None of them has bound it. */
    CHECK(!id->verbs && rdma_get_src_port(id) == 0 && rdma_get_dst_port(id) == 0 && !has_event(channel, 0));
    CHECK(rdma_resolve_addr(id, NULL, generic(&here), 1000) == 0 && expect_in(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
    CHECK(id->verbs && id->pd && rdma_get_dst_port(id) == htons(7202));
    MINUS_ONE_WITH(rdma_resolve_addr(id, NULL, generic(&here), 1000), EINVAL);
    MINUS_ONE_WITH(rdma_connect(id, NULL), EINVAL);
    CHECK(rdma_resolve_route(id, 1000) == 0 && expect_in(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
    MINUS_ONE_WITH(rdma_resolve_route(id, 1000), EINVAL);
    CHECK(rdma_destroy_id(id) == 0);
    rdma_destroy_event_channel(channel);
}

/* What an identifier is bound to is what its peer sees, by either call, and with a selected port too. */
static void check_source(void) {
    struct rdma_cm_id *listener = listen_at(7203, 8);
    struct sockaddr_in there = at(address, 7203);
    int ports[] = {7204, 7205, 0, 0};
    for (int way = 0; way < 4; way++) {
        struct sockaddr_in source = at(way == 3 ? "0.0.0.0" : address, ports[way]);
        struct rdma_event_channel *channel = rdma_create_event_channel();
        struct rdma_cm_id *id = new_id(channel);
        if (way != 1) CHECK(rdma_bind_addr(id, generic(&source)) == 0);
        CHECK(rdma_resolve_addr(id, way == 1 ? generic(&source) : NULL, generic(&there), 1000) == 0);
        int port = rdma_get_src_port(id);
        CHECK(port != 0 && (!ports[way] || port == htons(ports[way])));
        expect_in(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
        CHECK(rdma_resolve_route(id, 1000) == 0);
        expect_in(channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
        add_queue_pair(id);
        CHECK(rdma_connect(id, NULL) == 0);
        struct rdma_cm_id *far = accept_from(listener);
        CHECK(rdma_get_dst_port(far) == port && rdma_get_src_port(far) == htons(7203));
        expect_in(channel, RDMA_CM_EVENT_ESTABLISHED);
        CHECK(rdma_get_src_port(id) == port);
        destroy(id);
        destroy(far);
    }
    destroy(listener);
}

/* All addresses, and those of one family only. */
static void check_wildcards(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct sockaddr_in6 all = {.sin6_family = AF_INET6, .sin6_port = htons(7206)};
    int on = 1;
    for (int only = 0; only < 2; only++) {
        struct rdma_cm_id *listener = new_id(channel);
        if (only) CHECK(rdma_set_option(listener, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on) == 0);
        CHECK(rdma_bind_addr(listener, generic(&all)) == 0 && rdma_listen(listener, 1) == 0);
        struct rdma_cm_id *id = connect_to(7206);
        if (only) {
            CHECK(expect_in(id->channel, RDMA_CM_EVENT_REJECTED) == id && !has_event(channel, 0));
        } else {
            struct rdma_cm_id *far = expect_in(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
            CHECK(rdma_get_local_addr(far)->sa_family == AF_INET && rdma_destroy_id(far) == 0);
            expect_in(id->channel, RDMA_CM_EVENT_REJECTED);
        }
        destroy(id);
        CHECK(rdma_destroy_id(listener) == 0);
    }
    rdma_destroy_event_channel(channel);
}

/* Of a name of the standard library's resolver, or of an address that the program has. */
static void check_names(void) {
    struct rdma_addrinfo *found, hints = {.ai_flags = RAI_PASSIVE};
    MINUS_ONE_WITH(rdma_getaddrinfo(NULL, NULL, NULL, &found), EINVAL);
    /* rdma_getaddrinfo(3): -1 with errno, or a code of the resolver's. */
    struct rdma_addrinfo numeric = {.ai_flags = RAI_NUMERICHOST | RAI_FAMILY, .ai_family = AF_INET};
    CHECK(rdma_getaddrinfo("no such name", "1", &numeric, &found) == EAI_NONAME);
    CHECK(rdma_getaddrinfo("fd00::1", "1", &numeric, &found) == EAI_ADDRFAMILY);
    CHECK(rdma_getaddrinfo(address, "no such service", &numeric, &found) == EAI_SERVICE);
    numeric.ai_family = AF_UNIX;
    CHECK(rdma_getaddrinfo(address, "1", &numeric, &found) == EAI_FAMILY);
    MINUS_ONE_WITH(rdma_getaddrinfo(address, "7207", NULL, NULL), EINVAL);
    CHECK(rdma_getaddrinfo(address, "7207", NULL, &found) == 0 && found->ai_family == AF_INET && !found->ai_next);
    CHECK(found->ai_dst_len == sizeof(struct sockaddr_in) && !found->ai_src_addr && found->ai_src_len == 0);
    CHECK(((struct sockaddr_in *)found->ai_dst_addr)->sin_port == htons(7207) && found->ai_qp_type == IBV_QPT_RC);
    CHECK(found->ai_port_space == RDMA_PS_TCP);
    rdma_freeaddrinfo(found);
    CHECK(rdma_getaddrinfo(address, "7207", &hints, &found) == 0 && found->ai_src_addr && !found->ai_dst_addr);
    CHECK(found->ai_dst_len == 0 && found->ai_flags == RAI_PASSIVE);
    rdma_freeaddrinfo(found);
    hints.ai_flags = RAI_NUMERICHOST;
    CHECK(rdma_getaddrinfo("localhost", "7207", &hints, &found) == EAI_NONAME);
    /* The source that the hints give is kept. */
    struct sockaddr_in source = at(address, 7208), destination = at(address, 7209);
    hints = (struct rdma_addrinfo){.ai_src_addr = generic(&source), .ai_src_len = sizeof source,
                                   .ai_dst_addr = generic(&destination), .ai_dst_len = sizeof destination};
    CHECK(rdma_getaddrinfo(NULL, NULL, &hints, &found) == 0);
    CHECK(!memcmp(found->ai_src_addr, &source, sizeof source) && !memcmp(found->ai_dst_addr, &destination, sizeof source));
    rdma_freeaddrinfo(found);
    rdma_freeaddrinfo(NULL);
}

/* Connects to an address of the device's, from the address that the stack selects for it. */
static void check_ipv6(struct rdma_cm_id *listener, struct sockaddr_in6 there, const struct in6_addr *source) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = new_id(channel);
    CHECK(rdma_resolve_addr(id, NULL, generic(&there), 1000) == 0 && expect_in(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == id);
    struct sockaddr_in6 *local = (void *)rdma_get_local_addr(id), *remote = (void *)rdma_get_peer_addr(id);
    CHECK(remote->sin6_scope_id == there.sin6_scope_id && remote->sin6_port == there.sin6_port);
    CHECK(!memcmp(&local->sin6_addr, source, sizeof *source));
    CHECK(rdma_resolve_route(id, 1000) == 0 && expect_in(channel, RDMA_CM_EVENT_ROUTE_RESOLVED) == id);
    add_queue_pair(id);
    CHECK(rdma_connect(id, NULL) == 0);
    struct rdma_cm_id *far = accept_from(listener);
    CHECK(expect_in(channel, RDMA_CM_EVENT_ESTABLISHED) == id);
    CHECK(!memcmp(&local->sin6_addr, source, sizeof *source) && remote->sin6_scope_id == there.sin6_scope_id);
    local = (void *)rdma_get_local_addr(far);
    CHECK(!memcmp(&local->sin6_addr, &there.sin6_addr, sizeof there.sin6_addr));
    destroy(id);
    destroy(far);
}

/* The device has its link-local address besides the configured ones, for a listener of all addresses and by itself. */
static void check_link_local(void) {
    struct sockaddr_in6 all = {.sin6_family = AF_INET6, .sin6_port = htons(7210)}, configured = all, link_local = all;
    union ibv_gid gid;
    struct rdma_cm_id *listener = new_id(rdma_create_event_channel());
    CHECK(rdma_bind_addr(listener, generic(&all)) == 0 && rdma_listen(listener, 4) == 0);
    struct ibv_context **devices = rdma_get_devices(NULL);
    CHECK(devices && ibv_query_gid(devices[0], 1, 0, &gid) == 0 && inet_pton(AF_INET6, "fd00::1", &configured.sin6_addr) == 1);
    /* RFC 4291 appendix A: the modified EUI-64 of the link address. */
    uint8_t *mac = gid.raw, octets[16] = {0xfe, 0x80, [8] = mac[0] ^ 2, mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
    memcpy(&link_local.sin6_addr, octets, sizeof octets);
    link_local.sin6_scope_id = 3;
    check_ipv6(listener, configured, &configured.sin6_addr);
    check_ipv6(listener, link_local, &link_local.sin6_addr);
    destroy(listener);
    listener = new_id(rdma_create_event_channel());
    CHECK(rdma_bind_addr(listener, generic(&link_local)) == 0 && rdma_listen(listener, 4) == 0);
    CHECK(((struct sockaddr_in6 *)rdma_get_local_addr(listener))->sin6_scope_id == 3);
    check_ipv6(listener, link_local, &link_local.sin6_addr);
    destroy(listener);
    rdma_free_devices(devices);
}

/* In a process of its own, with a device that has IPv6, and nobody at the other end who could have the same address. */
static void check_ipv6_device(void) {
    char name[200], configuration[220];
    snprintf(name, sizeof name, "%s/addresses-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    snprintf(configuration, sizeof configuration, "%s.toml", name);
    FILE *file = fopen(configuration, "w");
    CHECK(file);
    fprintf(file, "[port]\ndevice.memif = { role = \"server\", socket = \"%s.sock\" }\n", name);
    fprintf(file, "[net]\naddress = \"fd00::1/64\"\ndad_probes_ipv6 = 0\n[core]\nidle = \"yield\"\n");
    CHECK(fclose(file) == 0);
    pid_t child = fork();
    if (child == 0) {
        alarm(PATIENCE);
        CHECK(setenv("IRONWARP_CONFIG", configuration, 1) == 0);
        check_link_local();
        exit(0);
    }
    int status;
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0 && unlink(configuration) == 0);
}

int main(int count, char **arguments) {
    check_ipv6_device();
    begin(count, arguments);
    check_binding();
    check_reuse();
    check_selected_ports();
    check_resolution();
    check_source();
    check_wildcards();
    check_names();
    printf("addresses: %d checks passed\n", checks);
    return 0;
}

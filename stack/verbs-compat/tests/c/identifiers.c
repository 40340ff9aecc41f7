/*
 * rdma_create_id, rdma_destroy_id, rdma_migrate_id, rdma_set_option, event channels and events, against their manual pages.
 * Takes the device's address. Prints `identifiers: N checks passed`.
 */
#include <pthread.h>
#include <sched.h>

#include "connect.h"

static void check_creation(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id;
    int before = descriptors();
    MINUS_ONE_WITH(rdma_create_id(channel, NULL, NULL, RDMA_PS_TCP), EINVAL);
    MINUS_ONE_WITH(rdma_create_id(channel, &id, NULL, RDMA_PS_UDP), EPROTONOSUPPORT);
    MINUS_ONE_WITH(rdma_create_id(NULL, &id, NULL, RDMA_PS_UDP), EPROTONOSUPPORT);
    CHECK(descriptors() == before);
    CHECK(rdma_create_id(channel, &id, &checks, RDMA_PS_TCP) == 0);
    CHECK(id->channel == channel && id->context == &checks && id->ps == RDMA_PS_TCP && !id->verbs && !id->qp && !id->event);
    CHECK(rdma_destroy_id(id) == 0);
    MINUS_ONE_WITH(rdma_destroy_id(id), EINVAL);
    MINUS_ONE_WITH(rdma_destroy_id(NULL), EINVAL);
    MINUS_ONE_WITH(rdma_destroy_id((struct rdma_cm_id *)&checks), EINVAL);
    /* A channel of its own, which goes with it. */
    CHECK(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP) == 0 && id->channel && descriptors() == before + 1);
    CHECK(rdma_destroy_id(id) == 0 && descriptors() == before);
    rdma_destroy_event_channel(channel);
    CHECK(descriptors() == before - 1);
    struct rdma_cm_event *event;
    MINUS_ONE_WITH(rdma_get_cm_event(channel, &event), EINVAL);
    MINUS_ONE_WITH(rdma_get_cm_event(NULL, &event), EINVAL);
}

static void check_events(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel();
    struct rdma_cm_id *id = new_id(channel);
    struct rdma_cm_event *event = NULL;
    CHECK(fcntl(channel->fd, F_SETFL, O_NONBLOCK) == 0 && !has_event(channel, 0));
    MINUS_ONE_WITH(rdma_get_cm_event(channel, &event), EAGAIN);
    struct sockaddr_in here = at(address, 7100);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000) == 0 && has_event(channel, 0));
    /* A call without a place for the event takes none. */
    MINUS_ONE_WITH(rdma_get_cm_event(channel, NULL), EINVAL);
    CHECK(rdma_get_cm_event(channel, &event) == 0 && event->id == id && event->event == RDMA_CM_EVENT_ADDR_RESOLVED);
    CHECK(event->status == 0 && !event->listen_id && !event->param.conn.private_data && !has_event(channel, 0));
    CHECK(rdma_ack_cm_event(event) == 0);
    MINUS_ONE_WITH(rdma_ack_cm_event(event), EINVAL);
    MINUS_ONE_WITH(rdma_ack_cm_event(NULL), EINVAL);
    CHECK(!strcmp(rdma_event_str(RDMA_CM_EVENT_TIMEWAIT_EXIT), "RDMA_CM_EVENT_TIMEWAIT_EXIT"));
    CHECK(!strcmp(rdma_event_str(99), "UNKNOWN EVENT"));
    /* An event that was not fetched goes with its identifier. */
    CHECK(rdma_resolve_route(id, 1000) == 0 && has_event(channel, 0));
    CHECK(rdma_destroy_id(id) == 0 && !has_event(channel, 0));
    rdma_destroy_event_channel(channel);
}

static void *acknowledge(void *event) {
    for (int turn = 0; turn < 1000; turn++) sched_yield();
    checks++;
    rdma_ack_cm_event(event);
    return NULL;
}

/* Destruction and migration wait for events that were fetched and not acknowledged. */
static void check_waits(void) {
    for (int migrates = 0; migrates < 2; migrates++) {
        struct rdma_event_channel *channel = rdma_create_event_channel(), *other = rdma_create_event_channel();
        struct rdma_cm_id *id = new_id(channel);
        struct sockaddr_in here = at(address, 7100);
        struct rdma_cm_event *event;
        pthread_t thread;
        CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000) == 0 && rdma_get_cm_event(channel, &event) == 0);
        int before = checks;
        CHECK(pthread_create(&thread, NULL, acknowledge, event) == 0);
        if (migrates) CHECK(rdma_migrate_id(id, other) == 0);
        CHECK(rdma_destroy_id(id) == 0 && checks > before + 1);
        CHECK(pthread_join(thread, NULL) == 0);
        rdma_destroy_event_channel(channel);
        rdma_destroy_event_channel(other);
    }
}

static void check_migration(void) {
    struct rdma_event_channel *channel = rdma_create_event_channel(), *other = rdma_create_event_channel();
    struct rdma_cm_id *id = new_id(channel), *stays = new_id(channel);
    struct sockaddr_in here = at(address, 7100);
    CHECK(rdma_resolve_addr(id, NULL, (struct sockaddr *)&here, 1000) == 0);
    CHECK(rdma_resolve_addr(stays, NULL, (struct sockaddr *)&here, 1000) == 0);
    /* A channel that is none changes nothing. */
    MINUS_ONE_WITH(rdma_migrate_id(id, (struct rdma_event_channel *)&checks), EINVAL);
    CHECK(id->channel == channel && rdma_migrate_id(id, channel) == 0 && id->channel == channel);
    /* Its pending events move, and no others. */
    CHECK(rdma_migrate_id(id, other) == 0 && id->channel == other);
    CHECK(expect_in(other, RDMA_CM_EVENT_ADDR_RESOLVED) == id && expect_in(channel, RDMA_CM_EVENT_ADDR_RESOLVED) == stays);
    CHECK(!has_event(channel, 0) && !has_event(other, 0));
    /* Without a channel its calls wait for their events. */
    int before = descriptors();
    CHECK(rdma_migrate_id(id, NULL) == 0 && id->channel != other && descriptors() == before + 1);
    CHECK(rdma_resolve_route(id, 1000) == 0 && id->event && id->event->event == RDMA_CM_EVENT_ROUTE_RESOLVED);
    CHECK(rdma_migrate_id(id, other) == 0 && id->channel == other && !id->event && descriptors() == before);
    CHECK(rdma_destroy_id(id) == 0 && rdma_destroy_id(stays) == 0);
    rdma_destroy_event_channel(channel);
    rdma_destroy_event_channel(other);
}

/* A listener takes the requests that were not fetched with it. */
static void check_listener_migration(void) {
    struct rdma_cm_id *listener = listen_at(7101, 4), *near = connect_to(7101);
    struct rdma_event_channel *first = listener->channel, *second = rdma_create_event_channel();
    CHECK(has_event(first, 5000) && rdma_migrate_id(listener, second) == 0 && !has_event(first, 0));
    struct rdma_cm_id *far = expect_in(second, RDMA_CM_EVENT_CONNECT_REQUEST);
    CHECK(far->channel == second && rdma_reject(far, NULL, 0) == 0 && rdma_destroy_id(far) == 0);
    expect_in(near->channel, RDMA_CM_EVENT_REJECTED);
    destroy(near);
    destroy(listener);
    rdma_destroy_event_channel(first);
}

static void check_options(void) {
    struct rdma_cm_id *id = new_id(rdma_create_event_channel()), *listener = listen_at(7102, 1);
    uint8_t octet = 16;
    int on = 1;
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &octet, sizeof octet) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &octet, sizeof octet) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof on) == 0);
    CHECK(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on) == 0);
    MINUS_ONE_WITH(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &on, sizeof on), EINVAL);
    MINUS_ONE_WITH(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &octet, sizeof octet), EINVAL);
    MINUS_ONE_WITH(rdma_set_option(id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, NULL, 1), EINVAL);
    MINUS_ONE_WITH(rdma_set_option(id, RDMA_OPTION_ID, 99, &on, sizeof on), EINVAL);
    MINUS_ONE_WITH(rdma_set_option(id, RDMA_OPTION_IB, RDMA_OPTION_IB_PATH, &on, sizeof on), EINVAL);
    MINUS_ONE_WITH(rdma_set_option(listener, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof on), EINVAL);
    MINUS_ONE_WITH(rdma_set_option(NULL, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &octet, 1), EINVAL);
    destroy(id);
    destroy(listener);
}

/* Many in turn: memory is used again, and nothing of one reaches another. */
static void check_many(void) {
    int before = descriptors();
    for (int turn = 0; turn < 300; turn++) {
        struct rdma_event_channel *channel = rdma_create_event_channel();
        struct rdma_cm_id *id = resolved_to(channel, 7100);
        CHECK(!id->qp && !id->event && !has_event(channel, 0) && rdma_destroy_id(id) == 0);
        rdma_destroy_event_channel(channel);
    }
    CHECK(descriptors() == before);
}

int main(int count, char **arguments) {
    begin(count, arguments);
    check_creation();
    check_events();
    check_waits();
    check_migration();
    check_listener_migration();
    check_options();
    check_many();
    printf("identifiers: %d checks passed\n", checks);
    return 0;
}

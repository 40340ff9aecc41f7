/* The host program: it starts DPDK, runs a reactor on every lcore, and ends all of it in order.
 *
 *   embed-c EAL-ARGUMENTS -- both   CONFIG CLIENT-CONFIG ADDRESS [ROUNDS]   server and client, joined by rings
 *   embed-c EAL-ARGUMENTS -- server CONFIG ADDRESS [CLIENTS]              until CLIENTS clients have left
 *   embed-c EAL-ARGUMENTS -- client CONFIG ADDRESS [ROUNDS]
 *
 * Each stack has as many cores (core.count) as there are lcores: lcore number i polls worker number i. The main lcore
 * does so too, between steps of the application.
 */
#include "embed.h"

#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_launch.h>
#include <rte_lcore.h>
#include <rte_pause.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { STACKS_MAX = 2 };

static atomic_bool stop;

/* The workers that one lcore polls: one of each stack. */
struct reactor {
    struct iw_worker *workers[STACKS_MAX];
    int count;
};

struct host {
    struct iw_stack *stacks[STACKS_MAX]; /* The server's, or the only one, first. */
    int stacks_open;
    struct reactor reactors[RTE_MAX_LCORE];
    struct server *server; /* Runs on the main lcore, where there is one. */
    bool failed;
};

static void on_signal(int number)
{
    (void)number;
    atomic_store(&stop, true);
}

static int reactor_poll(struct reactor *reactor)
{
    int32_t work = 0;
    for (int i = 0; i < reactor->count; i++) {
        int32_t done = iw_worker_poll(reactor->workers[i], 4, NULL);
        if (done < 0) {
            return report_error("polling a worker");
        }
        work += done;
    }
    if (work == 0) {
        rte_pause();
    }
    return 0;
}

/* A worker lcore: its reactor only. */
static int reactor_run(void *arg)
{
    struct reactor *reactor = &((struct host *)arg)->reactors[rte_lcore_index((int)rte_lcore_id())];
    while (!atomic_load_explicit(&stop, memory_order_relaxed)) {
        if (reactor_poll(reactor) != 0) {
            return -1;
        }
    }
    return 0;
}

/* The main lcore: its reactor, and the application. */
static bool host_poll(void *arg)
{
    struct host *host = arg;
    if (reactor_poll(&host->reactors[0]) != 0 || (host->server != NULL && server_step(host->server) != 0)) {
        host->failed = true;
    }
    return !host->failed && !atomic_load_explicit(&stop, memory_order_relaxed);
}

static int take_workers(struct host *host)
{
    for (int i = 0; i < host->stacks_open; i++) {
        int32_t cores = iw_stack_cores(host->stacks[i]);
        if (cores != (int32_t)rte_lcore_count()) {
            fprintf(stderr, "embed-c: core.count = %d, and there are %u lcores\n", cores, rte_lcore_count());
            return -1;
        }
        for (int32_t core = 0; core < cores; core++) {
            struct reactor *reactor = &host->reactors[core];
            if (iw_worker_take(host->stacks[i], (uint32_t)core, &reactor->workers[reactor->count]) != IW_OK) {
                return report_error("taking a worker");
            }
            reactor->count++;
        }
    }
    return rte_eal_mp_remote_launch(reactor_run, host, SKIP_MAIN);
}

/* From the lcores down to the device: users end before what they use. */
static int host_close(struct host *host)
{
    int outcome = 0;
    atomic_store(&stop, true);
    rte_eal_mp_wait_lcore();
    for (unsigned lcore = 0; lcore < rte_lcore_count(); lcore++) {
        for (int i = 0; i < host->reactors[lcore].count; i++) {
            outcome |= iw_worker_close(host->reactors[lcore].workers[i]);
        }
    }
    for (int i = 0; i < host->stacks_open; i++) {
        outcome |= iw_stack_close(host->stacks[i]);
    }
    return outcome == IW_OK ? 0 : report_error("closing");
}

static int read_number(const char *text, unsigned fallback)
{
    return text == NULL ? (int)fallback : atoi(text);
}

static char *read_text(const char *path)
{
    static char texts[STACKS_MAX][4096];
    static int next;
    FILE *file = fopen(path, "r");
    if (file == NULL) {
        fprintf(stderr, "embed-c: cannot read %s\n", path);
        return NULL;
    }
    char *text = texts[next++ % STACKS_MAX];
    text[fread(text, 1, sizeof texts[0] - 1, file)] = '\0';
    fclose(file);
    return text;
}

static int run_both(struct host *host, char **argv, const struct iw_addr *at)
{
    static struct server server;
    static struct client client;
    const char *server_config = read_text(argv[1]), *client_config = read_text(argv[2]);
    if (server_config == NULL || client_config == NULL) {
        return -1;
    }
    if (iw_stack_open_pair(server_config, client_config, IW_PAIR_RING, IW_CALLER_OWNS_EAL, &host->stacks[0], &host->stacks[1]) !=
        IW_OK) {
        return report_error("opening the stacks");
    }
    host->stacks_open = 2;
    if (take_workers(host) != 0 || server_open(&server, host->stacks[0], at) != 0 ||
        client_open(&client, host->stacks[1]) != 0) {
        return -1;
    }
    host->server = &server;
    if (client_run(&client, at, (unsigned)read_number(argv[4], 8), host_poll, host) != 0 ||
        client_close(&client, host_poll, host) != 0) {
        return -1;
    }
    return server_close(&server, host_poll, host);
}

static int run_server(struct host *host, char **argv, const struct iw_addr *at)
{
    static struct server server;
    unsigned clients = (unsigned)read_number(argv[3], 1);
    if (server_open(&server, host->stacks[0], at) != 0) {
        return -1;
    }
    printf("serving\n");
    fflush(stdout);
    host->server = &server;
    while (server.served < clients && host_poll(host)) {
    }
    return host->failed ? -1 : server_close(&server, host_poll, host);
}

static int run_client(struct host *host, char **argv, const struct iw_addr *at)
{
    static struct client client;
    if (client_open(&client, host->stacks[0]) != 0 ||
        client_run(&client, at, (unsigned)read_number(argv[3], 8), host_poll, host) != 0) {
        return -1;
    }
    return client_close(&client, host_poll, host);
}

/* DPDK's memif must not be polled while its peer goes away: this side stops until it has left. */
static void wait_link_down(struct host *host)
{
    uint64_t limit = iw_now_ns() + 10 * SECOND_NS;
    atomic_store(&stop, true);
    rte_eal_mp_wait_lcore();
    while (iw_worker_link_up(host->reactors[0].workers[0]) == 1 && iw_now_ns() < limit) {
        rte_pause();
    }
}

static int run(struct host *host, int argc, char **argv)
{
    struct iw_addr at;
    bool both = argc >= 4 && strcmp(argv[0], "both") == 0;
    if (argc < 3 || iw_addr_parse(argv[both ? 3 : 2], &at) != IW_OK) {
        fprintf(stderr, "embed-c: EAL-ARGUMENTS -- both|server|client CONFIG... ADDRESS:PORT [NUMBER]\n");
        return 2;
    }
    if (both) {
        return run_both(host, argv, &at);
    }
    if (iw_stack_open_file(argv[1], IW_CALLER_OWNS_EAL, &host->stacks[0]) != IW_OK) {
        return report_error("opening the stack");
    }
    host->stacks_open = 1;
    if (take_workers(host) != 0) {
        return -1;
    }
    if (strcmp(argv[0], "server") == 0) {
        return run_server(host, argv, &at);
    }
    int outcome = run_client(host, argv, &at);
    wait_link_down(host);
    return outcome;
}

int main(int argc, char **argv)
{
    static struct host host;
    int used = rte_eal_init(argc, argv);
    if (used < 0) {
        fprintf(stderr, "embed-c: rte_eal_init: %s\n", rte_strerror(rte_errno));
        return 2;
    }
    if (iw_abi_version() >> 16 != IW_ABI_VERSION >> 16) {
        fprintf(stderr, "embed-c: the library is another one than the header\n");
        return 2;
    }
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
    int outcome = run(&host, argc - used - 1, argv + used + 1);
    outcome |= host_close(&host);
    rte_eal_cleanup();
    return outcome == 0 ? 0 : outcome == 2 ? 2 : 1;
}

/*
 * `fork` beside an open device: what the child may use, and what it keeps of its parent. Takes the device's address. Prints
 * `forks: N checks passed`.
 */
#define _GNU_SOURCE
#include <sys/un.h>
#include <sys/wait.h>

#include "connect.h"

/* Runs `body` in a child process, whose checks end it with status 1. */
static void in_child(void (*body)(void)) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(PATIENCE);
        body();
        exit(0);
    }
    int status;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static struct ibv_context *try_open(void) {
    struct ibv_device **list = ibv_get_device_list(NULL);
    CHECK(list && list[0]);
    struct ibv_context *opened = ibv_open_device(list[0]);
    ibv_free_device_list(list);
    return opened;
}

/* Connects this process to itself. */
static void check_device(void) {
    struct ibv_context *opened = try_open();
    CHECK(opened);
    struct rdma_cm_id *listener = listen_at(7700, 1);
    struct ends ends = connected(listener, 7700);
    destroy(ends.near);
    destroy(ends.far);
    destroy(listener);
    CHECK(ibv_close_device(opened) == 0);
}

static void check_no_device(void) {
    struct ibv_device_attr attr;
    struct rdma_cm_id *id;
    CHECK(ibv_query_device(context, &attr) == EIO);
    CHECK(!try_open() && errno == EIO);
    MINUS_ONE_WITH(rdma_create_id(NULL, &id, NULL, RDMA_PS_TCP), EIO);
    MINUS_ONE_WITH(rdma_destroy_id(NULL), EIO);
}

/* Descriptors of the device's memif: its sockets and its shared memory. */
static int memif_descriptors(void) {
    int found = 0;
    for (int fd = 0; fd < 4096; fd++) {
        struct sockaddr_un name = {0};
        socklen_t bytes = sizeof name;
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        if (readlink(path, target, sizeof target - 1) > 0 && !strncmp(target, "/memfd:ironwarp-memif", 21)) found++;
        if (getsockname(fd, (struct sockaddr *)&name, &bytes) == 0 && name.sun_family == AF_UNIX && name.sun_path[0]) found++;
    }
    return found;
}

/* The peer of a memif sees that the parent is gone although the child lives. */
static void check_no_descriptors(void) {
    CHECK(memif_descriptors() == 0);
}

static char configuration[256];

static void use_other_configuration(void) {
    CHECK(setenv("IRONWARP_CONFIG", configuration, 1) == 0);
    struct ibv_device_attr attr;
    /* The parent's objects are none of this process. */
    CHECK(ibv_query_device(context, &attr) == EINVAL);
    check_device();
}

/* A second device of the same kind, at a socket of its own. */
static void write_configuration(void) {
    char folder[200];
    snprintf(folder, sizeof folder, "%s/forks-%d", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", (int)getpid());
    snprintf(configuration, sizeof configuration, "%s.toml", folder);
    FILE *file = fopen(configuration, "w");
    CHECK(file);
    fprintf(file, "[port]\ndevice.memif = { role = \"server\", socket = \"%s.sock\" }\n", folder);
    fprintf(file, "[net]\naddress = \"%s/24\"\n[core]\nidle = \"yield\"\n", address);
    CHECK(fclose(file) == 0);
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    alarm(PATIENCE);
    address = arguments[1];
    /* Before the device is open, and after the last object is gone, the first that needs it opens it. */
    in_child(check_device);
    context = try_open();
    CHECK(context && memif_descriptors() > 0 && ibv_close_device(context) == 0);
    in_child(check_device);
    context = try_open();
    CHECK(context && (pd = ibv_alloc_pd(context)));
    /* While the parent uses it the child has none, or another one. */
    in_child(check_no_device);
    in_child(check_no_descriptors);
    write_configuration();
    in_child(use_other_configuration);
    CHECK(unlink(configuration) == 0);
    struct ibv_device_attr attr;
    CHECK(ibv_query_device(context, &attr) == 0 && memif_descriptors() > 0);
    check_device();
    CHECK(ibv_dealloc_pd(pd) == 0 && ibv_close_device(context) == 0);
    printf("forks: %d checks passed\n", checks);
    return 0;
}

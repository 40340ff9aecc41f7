/* The headers of rdma-core whose layouts the library uses. */
#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

/* What the programs here share: checks, and addresses. */
#ifndef CHECK_H
#define CHECK_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <vipl.h>

#define EXPECT(call, expected)                                                                          \
    do {                                                                                                \
        VIP_RETURN returned = (call);                                                                   \
        if (returned != (expected)) {                                                                   \
            printf("%s:%d: %s returned %d, not %s\n", __FILE__, __LINE__, #call, returned, #expected); \
            fflush(stdout);                                                                             \
            exit(1);                                                                                    \
        }                                                                                               \
    } while (0)

#define CHECK(condition)                                                       \
    do {                                                                       \
        if (!(condition)) {                                                    \
            printf("%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            fflush(stdout);                                                    \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

#define LIMIT 20000 /* milliseconds: longer than any machine keeps a runnable process waiting */

typedef struct {
    VIP_NET_ADDRESS address;
    char more[64];
} Address;

/* The endpoint `number` of a host that the name service knows. */
static inline Address endpoint(VIP_NIC_HANDLE nic, unsigned number) {
    Address made;
    memset(&made, 0, sizeof made);
    EXPECT(VipNSGetHostByName(nic, "localhost", &made.address, 0), VIP_SUCCESS);
    made.address.DiscriminatorLen = sizeof number;
    memcpy(made.address.HostAddress + made.address.HostAddressLen, &number, sizeof number);
    return made;
}

typedef struct {
    VIP_NIC_HANDLE nic;
    VIP_PROTECTION_HANDLE ptag;
    VIP_VI_HANDLE vi;
    VIP_VI_ATTRIBUTES attributes;
    VIP_MEM_ATTRIBUTES memory;
} Side;

static inline Side open_side(VIP_CQ_HANDLE *cq) {
    Side side;
    memset(&side, 0, sizeof side);
    EXPECT(VipOpenNic("nic0", &side.nic), VIP_SUCCESS);
    EXPECT(VipNSInit(side.nic, NULL), VIP_SUCCESS);
    EXPECT(VipCreatePtag(side.nic, &side.ptag), VIP_SUCCESS);
    side.attributes.ReliabilityLevel = VIP_SERVICE_RELIABLE_DELIVERY;
    side.attributes.MaxTransferSize = 1 << 20;
    side.attributes.Ptag = side.ptag;
    side.attributes.EnableRdmaWrite = side.attributes.EnableRdmaRead = VIP_TRUE;
    side.memory.Ptag = side.ptag;
    side.memory.EnableRdmaWrite = side.memory.EnableRdmaRead = VIP_TRUE;
    if (cq) EXPECT(VipCreateCQ(side.nic, 64, cq), VIP_SUCCESS);
    EXPECT(VipCreateVi(side.nic, &side.attributes, NULL, cq ? *cq : NULL, &side.vi), VIP_SUCCESS);
    return side;
}

static inline void close_side(Side *side, VIP_CQ_HANDLE *cq) {
    EXPECT(VipDestroyVi(side->vi), VIP_SUCCESS);
    if (cq) EXPECT(VipDestroyCQ(*cq), VIP_SUCCESS);
    EXPECT(VipDestroyPtag(side->nic, side->ptag), VIP_SUCCESS);
    EXPECT(VipNSShutdown(side->nic), VIP_SUCCESS);
    EXPECT(VipCloseNic(side->nic), VIP_SUCCESS);
}

/* Asks until somebody waits there. */
static inline VIP_RETURN request(Side *side, Address *here, Address *there, VIP_VI_ATTRIBUTES *theirs) {
    VIP_RETURN code;
    for (int tries = 0; tries < LIMIT; tries++) {
        code = VipConnectRequest(side->vi, &here->address, &there->address, LIMIT, theirs);
        if (code != VIP_NO_MATCH) break;
        usleep(1000);
    }
    return code;
}

static inline VIP_DESCRIPTOR *describe(VIP_DESCRIPTOR *place, int operation, void *data, VIP_MEM_HANDLE handle,
                                       unsigned length) {
    memset(place, 0, sizeof *place);
    place->CS.Control = operation;
    place->CS.SegCount = 1;
    place->DS[0].Local.Data.Address = data;
    place->DS[0].Local.Handle = handle;
    place->DS[0].Local.Length = length;
    return place;
}

/* An RDMA operation: the address segment first. */
static inline VIP_DESCRIPTOR *describe_rdma(VIP_DESCRIPTOR *place, int operation, void *data, VIP_MEM_HANDLE handle,
                                            unsigned length, VIP_UINT64 remote, VIP_MEM_HANDLE remote_handle) {
    describe(place, operation, data, handle, length);
    place->DS[1] = place->DS[0];
    place->CS.SegCount = 2;
    place->DS[0].Remote.Data.AddressBits = remote;
    place->DS[0].Remote.Handle = remote_handle;
    place->DS[0].Remote.Reserved = 0;
    return place;
}

#endif

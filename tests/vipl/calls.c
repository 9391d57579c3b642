/* Every call of the VI Provider Library with arguments that it must refuse, and with those that it must take. */
#include "check.h"

#include <pthread.h>

static char page[4096] __attribute__((aligned(64)));

static void nics(void) {
    VIP_NIC_HANDLE nic, none = NULL, junk = (VIP_NIC_HANDLE)(uintptr_t)0x12345;
    VIP_NIC_ATTRIBUTES attributes;
    EXPECT(VipOpenNic(NULL, &nic), VIP_INVALID_PARAMETER);
    EXPECT(VipOpenNic("nic0", NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipOpenNic("nic0", &nic), VIP_SUCCESS);
    EXPECT(VipQueryNic(none, &attributes), VIP_INVALID_PARAMETER);
    EXPECT(VipQueryNic(junk, &attributes), VIP_INVALID_PARAMETER);
    EXPECT(VipQueryNic(nic, NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipQueryNic(nic, &attributes), VIP_SUCCESS);
    CHECK(attributes.NicAddressLen == 4 && attributes.LocalNicAddress[0] == 127 && attributes.ThreadSafe);
    CHECK(attributes.MaxSegmentsPerDesc == 252);
    CHECK(attributes.ReliabilityLevelSupport == 7 && attributes.RDMAReadSupport == 6);
    CHECK(attributes.MaxDiscriminatorLen == 32 && attributes.Name[0] != 0);

    VIP_AUTODISCOVERY_LIST list;
    VIP_COUNTERS counters;
    EXPECT(VipQuerySystemManagementInfo(nic, VIP_SMI_AUTODISCOVERY, NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipQuerySystemManagementInfo(nic, 77, &list), VIP_INVALID_PARAMETER);
    EXPECT(VipQuerySystemManagementInfo(nic, VIP_SMI_AUTODISCOVERY, &list), VIP_SUCCESS);
    CHECK(list.NumAdAddrs == 1 && list.ADAddrArray[0]->HostAddressLen == 4);
    CHECK(memcmp(list.ADAddrArray[0]->HostAddress, attributes.LocalNicAddress, 4) == 0);
    EXPECT(VipQuerySystemManagementInfo(nic, VIP_SMI_COUNTERS, &counters), VIP_SUCCESS);
    CHECK(counters.TransferredBytes == 0 && counters.Pushes == 0);

    Address address;
    char name[256];
    VIP_ULONG length = sizeof name;
    EXPECT(VipNSGetHostByName(nic, "localhost", &address.address, 0), VIP_ERROR_NAMESERVICE);
    EXPECT(VipNSInit(none, NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipNSInit(nic, NULL), VIP_SUCCESS);
    EXPECT(VipNSGetHostByName(nic, NULL, &address.address, 0), VIP_INVALID_PARAMETER);
    EXPECT(VipNSGetHostByName(nic, "localhost", &address.address, 99), VIP_ERROR_NAMESERVICE);
    EXPECT(VipNSGetHostByName(nic, "localhost", &address.address, 0), VIP_SUCCESS);
    EXPECT(VipNSGetHostByAddr(nic, &address.address, name, &length), VIP_SUCCESS);
    CHECK(length == strlen(name) + 1);
    length = 1;
    EXPECT(VipNSGetHostByAddr(nic, &address.address, name, &length), VIP_ERROR_RESOURCE);
    CHECK(length == strlen(name) + 1);
    EXPECT(VipNSShutdown(nic), VIP_SUCCESS);

    VIP_PROTECTION_HANDLE ptag;
    EXPECT(VipCreatePtag(nic, NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipCreatePtag(nic, &ptag), VIP_SUCCESS);
    VIP_MEM_ATTRIBUTES memory = {ptag, VIP_TRUE, VIP_FALSE}, found;
    VIP_MEM_HANDLE handle;
    EXPECT(VipRegisterMem(nic, NULL, 10, &memory, &handle), VIP_INVALID_PARAMETER);
    EXPECT(VipRegisterMem(nic, page, 0, &memory, &handle), VIP_INVALID_PARAMETER);
    EXPECT(VipRegisterMem(nic, page, 10, NULL, &handle), VIP_INVALID_PARAMETER);
    EXPECT(VipRegisterMem(nic, page, 10, &memory, NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipRegisterMem(nic, page, (VIP_ULONG)1 << 50, &memory, &handle), VIP_ERROR_RESOURCE);
    EXPECT(VipRegisterMem(nic, page, sizeof page, &memory, &handle), VIP_SUCCESS);
    EXPECT(VipCloseNic(nic), VIP_ERROR_RESOURCE);
    EXPECT(VipDestroyPtag(nic, ptag), VIP_ERROR_RESOURCE);
    EXPECT(VipQueryMem(nic, page, handle, &found), VIP_SUCCESS);
    CHECK(found.Ptag == ptag && found.EnableRdmaWrite && !found.EnableRdmaRead);
    memory.EnableRdmaRead = VIP_TRUE;
    EXPECT(VipSetMemAttributes(nic, page, handle, &memory), VIP_SUCCESS);
    EXPECT(VipQueryMem(nic, page, handle, &found), VIP_SUCCESS);
    CHECK(found.EnableRdmaRead);
    EXPECT(VipQueryMem(nic, page + 1, handle, &found), VIP_INVALID_PARAMETER);
    memory.Ptag = (VIP_PROTECTION_HANDLE)(uintptr_t)9999;
    EXPECT(VipSetMemAttributes(nic, page, handle, &memory), VIP_INVALID_PTAG);
    EXPECT(VipDeregisterMem(nic, page, handle + 1), VIP_INVALID_PARAMETER);
    EXPECT(VipDeregisterMem(nic, page, handle), VIP_SUCCESS);
    EXPECT(VipDeregisterMem(nic, page, handle), VIP_INVALID_PARAMETER);

    void *allocated;
    EXPECT(VipAllocateMem(nic, &allocated, 100, &memory, &handle), VIP_INVALID_PTAG);
    memory.Ptag = ptag;
    EXPECT(VipAllocateMem(nic, NULL, 100, &memory, &handle), VIP_INVALID_PARAMETER);
    EXPECT(VipAllocateMem(nic, &allocated, 100, &memory, &handle), VIP_SUCCESS);
    memset(allocated, 1, 100);
    EXPECT(VipFreeMem(nic, allocated, handle), VIP_SUCCESS);
    EXPECT(VipDestroyPtag(nic, ptag), VIP_SUCCESS);
    EXPECT(VipDestroyPtag(nic, ptag), VIP_INVALID_PTAG);
    EXPECT(VipErrorCallback(nic, NULL, NULL), VIP_SUCCESS);
    EXPECT(VipCloseNic(nic), VIP_SUCCESS);
    EXPECT(VipCloseNic(nic), VIP_INVALID_PARAMETER);
}

static void vis(void) {
    VIP_CQ_HANDLE cq;
    Side side = open_side(&cq);
    VIP_VI_HANDLE vi;
    VIP_VI_ATTRIBUTES wrong = side.attributes, found;
    EXPECT(VipCreateVi(side.nic, NULL, NULL, NULL, &vi), VIP_INVALID_PARAMETER);
    EXPECT(VipCreateVi(side.nic, &wrong, side.vi, NULL, &vi), VIP_INVALID_PARAMETER);
    wrong.ReliabilityLevel = 3;
    EXPECT(VipCreateVi(side.nic, &wrong, NULL, NULL, &vi), VIP_INVALID_RELIABILITY_LEVEL);
    wrong = side.attributes;
    wrong.QoS = &side;
    EXPECT(VipCreateVi(side.nic, &wrong, NULL, NULL, &vi), VIP_INVALID_QOS);
    wrong = side.attributes;
    wrong.MaxTransferSize = (VIP_ULONG)-1;
    EXPECT(VipCreateVi(side.nic, &wrong, NULL, NULL, &vi), VIP_INVALID_MTU);
    wrong = side.attributes;
    wrong.Ptag = NULL;
    EXPECT(VipCreateVi(side.nic, &wrong, NULL, NULL, &vi), VIP_INVALID_PTAG);
    wrong = side.attributes;
    wrong.ReliabilityLevel = VIP_SERVICE_UNRELIABLE;
    EXPECT(VipCreateVi(side.nic, &wrong, NULL, NULL, &vi), VIP_INVALID_RDMAREAD);
    VIP_VI_STATE state;
    VIP_BOOLEAN sends, receives;
    EXPECT(VipQueryVi(side.vi, &state, &found, &sends, &receives), VIP_SUCCESS);
    CHECK(state == VIP_STATE_IDLE && found.MaxTransferSize == 1 << 20 && found.Ptag == side.ptag && sends && receives);
    wrong = side.attributes;
    wrong.MaxTransferSize = 4096;
    EXPECT(VipSetViAttributes(side.vi, &wrong), VIP_SUCCESS);
    EXPECT(VipQueryVi(side.vi, NULL, &found, NULL, NULL), VIP_SUCCESS);
    CHECK(found.MaxTransferSize == 4096);

    VIP_MEM_HANDLE handle;
    VIP_DESCRIPTOR *descriptors = (VIP_DESCRIPTOR *)page, *done;
    EXPECT(VipRegisterMem(side.nic, page, sizeof page, &side.memory, &handle), VIP_SUCCESS);
    EXPECT(VipSendDone(side.vi, &done), VIP_NOT_DONE);
    EXPECT(VipRecvDone(side.vi, &done), VIP_NOT_DONE);
    void *own;
    VIP_MEM_HANDLE own_handle;
    EXPECT(VipAllocateMem(side.nic, &own, 4096, &side.memory, &own_handle), VIP_SUCCESS);
    describe((VIP_DESCRIPTOR *)own, VIP_CONTROL_OP_SENDRECV, page + 1024, handle, 8);
    EXPECT(VipPostRecv(side.vi, (VIP_DESCRIPTOR *)own, own_handle), VIP_SUCCESS);
    EXPECT(VipFreeMem(side.nic, own, own_handle), VIP_ERROR_RESOURCE); /* the descriptor lies there */
    EXPECT(VipSetViAttributes(side.vi, &wrong), VIP_ERROR_RESOURCE); /* a receive is posted */
    EXPECT(VipDisconnect(side.vi), VIP_SUCCESS);
    EXPECT(VipRecvDone(side.vi, &done), VIP_DESCRIPTOR_ERROR);
    CHECK(done == own && (done->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR));
    VIP_MEM_ATTRIBUTES foreign = side.memory;
    EXPECT(VipCreatePtag(side.nic, &foreign.Ptag), VIP_SUCCESS);
    EXPECT(VipSetMemAttributes(side.nic, own, own_handle, &foreign), VIP_SUCCESS);
    EXPECT(VipPostRecv(side.vi, (VIP_DESCRIPTOR *)own, own_handle), VIP_INVALID_PARAMETER);
    EXPECT(VipFreeMem(side.nic, own, own_handle), VIP_SUCCESS);
    EXPECT(VipSendWait(side.vi, 1, &done), VIP_TIMEOUT);
    EXPECT(VipRecvWait(side.vi, 1, &done), VIP_ERROR_RESOURCE); /* it has a completion queue */
    EXPECT(VipRecvNotify(side.vi, NULL, NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipPostSend(side.vi, NULL, handle), VIP_INVALID_PARAMETER);
    EXPECT(VipPostSend(side.vi, (VIP_DESCRIPTOR *)(page + 8), handle), VIP_INVALID_PARAMETER);
    EXPECT(VipPostSend(side.vi, descriptors, handle + 1), VIP_INVALID_PARAMETER);
    describe(descriptors, VIP_CONTROL_OP_SENDRECV, page + 1024, handle, 8);
    descriptors->CS.SegCount = 60000; /* its list is not inside registered memory */
    EXPECT(VipPostSend(side.vi, descriptors, handle), VIP_INVALID_PARAMETER);
    describe(descriptors, VIP_CONTROL_OP_RESERVED, page + 1024, handle, 8);
    EXPECT(VipPostSend(side.vi, descriptors, handle), VIP_SUCCESS);
    EXPECT(VipSendDone(side.vi, &done), VIP_DESCRIPTOR_ERROR);
    CHECK(done == descriptors && (done->CS.Status & VIP_STATUS_FORMAT_ERROR) && (done->CS.Status & VIP_STATUS_DONE));
    describe(descriptors, VIP_CONTROL_OP_SENDRECV, page + 1024, handle, 8);
    EXPECT(VipPostSend(side.vi, descriptors, handle), VIP_SUCCESS);
    CHECK(descriptors->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_DESC_FLUSHED_ERROR)); /* not connected */
    EXPECT(VipDestroyVi(side.vi), VIP_ERROR_RESOURCE);
    EXPECT(VipSendWait(side.vi, LIMIT, &done), VIP_DESCRIPTOR_ERROR);
    EXPECT(VipPostRecv(side.vi, descriptors, handle), VIP_SUCCESS);
    EXPECT(VipDeregisterMem(side.nic, page, handle), VIP_ERROR_RESOURCE);
    VIP_VI_HANDLE of;
    VIP_BOOLEAN receive;
    EXPECT(VipCQDone(cq, &of, &receive), VIP_NOT_DONE);
    EXPECT(VipCQWait(cq, 1, &of, &receive), VIP_TIMEOUT);
    EXPECT(VipDisconnect(side.vi), VIP_SUCCESS);
    EXPECT(VipCQDone(cq, &of, NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipCQWait(cq, LIMIT, &of, &receive), VIP_SUCCESS);
    CHECK(of == side.vi && receive);
    EXPECT(VipRecvDone(side.vi, &done), VIP_DESCRIPTOR_ERROR);
    CHECK(done->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE | VIP_STATUS_DESC_FLUSHED_ERROR));
    EXPECT(VipCreateCQ(side.nic, 0, &of), VIP_INVALID_PARAMETER);
    EXPECT(VipCreateCQ(side.nic, (VIP_ULONG)1 << 40, &of), VIP_ERROR_RESOURCE);
    EXPECT(VipResizeCQ(cq, 128), VIP_SUCCESS);
    EXPECT(VipDestroyCQ(cq), VIP_ERROR_RESOURCE);

    Address here = endpoint(side.nic, getpid()), there = endpoint(side.nic, getpid() + 1);
    VIP_CONN_HANDLE connection;
    EXPECT(VipConnectRequest(side.vi, &here.address, &there.address, LIMIT, NULL), VIP_NO_MATCH);
    EXPECT(VipConnectRequest(side.vi, NULL, &there.address, LIMIT, NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipConnectWait(side.nic, &there.address, 10, NULL, NULL, &connection), VIP_TIMEOUT);
    EXPECT(VipConnectWait(side.nic, &there.address, 10, NULL, NULL, NULL), VIP_INVALID_PARAMETER);
    there.address.DiscriminatorLen = 33;
    EXPECT(VipConnectWait(side.nic, &there.address, 10, NULL, NULL, &connection), VIP_INVALID_PARAMETER);
    EXPECT(VipConnectAccept(NULL, side.vi), VIP_INVALID_PARAMETER);
    EXPECT(VipConnectReject(side.vi), VIP_INVALID_PARAMETER);
    EXPECT(VipConnectPeerDone(side.vi, NULL), VIP_INVALID_PARAMETER);
    EXPECT(VipConnectPeerRequest(side.vi, &here.address, &here.address, 10), VIP_INVALID_PARAMETER);
    there = endpoint(side.nic, getpid() + 1);
    EXPECT(VipConnectPeerRequest(side.vi, &here.address, &there.address, 50), VIP_SUCCESS);
    EXPECT(VipConnectPeerRequest(side.vi, &here.address, &there.address, 50), VIP_INVALID_STATE);
    EXPECT(VipSetViAttributes(side.vi, &side.attributes), VIP_INVALID_STATE);
    EXPECT(VipConnectPeerDone(side.vi, NULL), VIP_NOT_DONE);
    EXPECT(VipConnectPeerWait(side.vi, NULL), VIP_TIMEOUT);
    EXPECT(VipDeregisterMem(side.nic, page, handle), VIP_SUCCESS);
    close_side(&side, &cq);
    EXPECT(VipQueryVi(side.vi, NULL, NULL, NULL, NULL), VIP_INVALID_PARAMETER);
}

int main(void) {
    nics();
    vis();
    printf("No Errors\n");
    return 0;
}

/* Two processes that talk through the VI Provider Library: messages in both directions by both ways of memory, gather
 * and scatter, RDMA, a completion queue, handlers, a receive that is too small, and a process that is killed. */
#include "check.h"

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

enum { ROUNDS = 1000, SLOTS = 16, SLOT = 1024, AREA = SLOTS * SLOT };

/* Descriptors and buffers, registered (way 2) or allocated (way 3). */
typedef struct {
    char *start;
    VIP_DESCRIPTOR *descriptors;
    char *data;
    VIP_MEM_HANDLE handle;
    int allocated;
} Memory;

/* What the server shows to the client. */
typedef struct {
    VIP_UINT64 address;
    VIP_MEM_HANDLE handle;
} Shown;

static Memory take(Side *side, int allocated) {
    Memory memory = {.allocated = allocated};
    size_t length = 64 * sizeof(VIP_DESCRIPTOR) + AREA;
    if (allocated) {
        void *start;
        EXPECT(VipAllocateMem(side->nic, &start, length, &side->memory, &memory.handle), VIP_SUCCESS);
        memory.start = start;
    } else {
        memory.start = aligned_alloc(64, length);
        CHECK(memory.start);
        EXPECT(VipRegisterMem(side->nic, memory.start, length, &side->memory, &memory.handle), VIP_SUCCESS);
    }
    memset(memory.start, 0, length);
    memory.descriptors = (VIP_DESCRIPTOR *)memory.start;
    memory.data = memory.start + 64 * sizeof(VIP_DESCRIPTOR);
    return memory;
}

static void give_back(Side *side, Memory *memory) {
    if (memory->allocated) {
        EXPECT(VipFreeMem(side->nic, memory->start, memory->handle), VIP_SUCCESS);
    } else {
        EXPECT(VipDeregisterMem(side->nic, memory->start, memory->handle), VIP_SUCCESS);
        free(memory->start);
    }
}

static void post_receive(Side *side, Memory *memory, int slot, unsigned length) {
    VIP_DESCRIPTOR *place = describe(&memory->descriptors[slot], VIP_CONTROL_OP_SENDRECV, memory->data + slot * SLOT,
                                     memory->handle, length);
    EXPECT(VipPostRecv(side->vi, place, memory->handle), VIP_SUCCESS);
}

static void send(Side *side, Memory *memory, int slot, void *data, unsigned length) {
    VIP_DESCRIPTOR *done, *place =
        describe(&memory->descriptors[slot], VIP_CONTROL_OP_SENDRECV, data, memory->handle, length);
    EXPECT(VipPostSend(side->vi, place, memory->handle), VIP_SUCCESS);
    EXPECT(VipSendWait(side->vi, LIMIT, &done), VIP_SUCCESS);
    CHECK(done == place && done->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_SEND) && done->CS.Length == length);
}

/* Echoes what comes until the client disconnects; its completions come through a completion queue. */
static void serve(unsigned number, int allocated) {
    VIP_CQ_HANDLE cq;
    Side side = open_side(&cq);
    Memory memory = take(&side, allocated);
    Address here = endpoint(side.nic, number), client;
    VIP_CONN_HANDLE connection;
    VIP_VI_ATTRIBUTES theirs;
    for (int slot = 0; slot < SLOTS / 2; slot++) post_receive(&side, &memory, slot, SLOT);
    EXPECT(VipConnectWait(side.nic, &here.address, LIMIT, &client.address, &theirs, &connection), VIP_SUCCESS);
    CHECK(client.address.DiscriminatorLen == sizeof number && theirs.MaxTransferSize == 1 << 20);
    EXPECT(VipConnectAccept(connection, side.vi), VIP_SUCCESS);
    EXPECT(VipConnectReject(connection), VIP_INVALID_PARAMETER);
    Shown shown = {(uintptr_t)(memory.data + (SLOTS - 1) * SLOT), memory.handle};
    memcpy(memory.data + (SLOTS - 2) * SLOT, &shown, sizeof shown);
    send(&side, &memory, 32, memory.data + (SLOTS - 2) * SLOT, sizeof shown);
    int failed = 0;
    for (;;) {
        VIP_VI_HANDLE vi;
        VIP_BOOLEAN receive;
        VIP_DESCRIPTOR *done;
        EXPECT(VipCQWait(cq, LIMIT, &vi, &receive), VIP_SUCCESS);
        CHECK(vi == side.vi && receive);
        VIP_RETURN code = VipRecvDone(vi, &done);
        if (code == VIP_DESCRIPTOR_ERROR) {
            failed++;
            if (failed == SLOTS / 2) break;
            continue;
        }
        EXPECT(code, VIP_SUCCESS);
        int slot = done - memory.descriptors;
        send(&side, &memory, 32, memory.data + slot * SLOT, done->CS.Length);
        post_receive(&side, &memory, slot, SLOT);
    }
    VIP_VI_STATE state;
    EXPECT(VipQueryVi(side.vi, &state, NULL, NULL, NULL), VIP_SUCCESS);
    CHECK(state == VIP_STATE_ERROR);
    EXPECT(VipDisconnect(side.vi), VIP_SUCCESS);
    give_back(&side, &memory);
    close_side(&side, &cq);
}

static int notified;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;

static void notice(VIP_PVOID context, VIP_NIC_HANDLE nic, VIP_VI_HANDLE vi, VIP_DESCRIPTOR *descriptor) {
    Side *side = context;
    CHECK(nic == side->nic && vi == side->vi && (descriptor->CS.Status & VIP_STATUS_DONE));
    pthread_mutex_lock(&lock);
    notified++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void notice_error(VIP_PVOID context, VIP_ERROR_DESCRIPTOR *error) {
    Side *side = context;
    CHECK(error->NicHandle == side->nic && error->ViHandle == side->vi && error->ResourceCode == VIP_RESOURCE_VI);
    CHECK(error->ErrorCode == VIP_ERROR_CONN_LOST);
    pthread_mutex_lock(&lock);
    notified++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void wait_for_notice(void) {
    pthread_mutex_lock(&lock);
    while (!notified) pthread_cond_wait(&changed, &lock);
    notified = 0;
    pthread_mutex_unlock(&lock);
}

static VIP_DESCRIPTOR *received(Side *side) {
    VIP_DESCRIPTOR *done;
    EXPECT(VipRecvWait(side->vi, LIMIT, &done), VIP_SUCCESS);
    return done;
}

static Shown meet(Side *side, Memory *memory, unsigned number) {
    Address here = endpoint(side->nic, number + 1), there = endpoint(side->nic, number);
    VIP_VI_ATTRIBUTES theirs;
    Shown shown;
    post_receive(side, memory, 0, SLOT);
    EXPECT(request(side, &here, &there, &theirs), VIP_SUCCESS);
    CHECK(theirs.ReliabilityLevel == VIP_SERVICE_RELIABLE_DELIVERY);
    VIP_DESCRIPTOR *done = received(side);
    CHECK(done->CS.Length == sizeof shown);
    memcpy(&shown, memory->data, sizeof shown);
    return shown;
}

static void talk(Side *side, Memory *memory, Shown shown) {
    for (int round = 0; round < ROUNDS; round++) {
        unsigned length = round % SLOT;
        memset(memory->data + SLOT, round, length);
        memset(memory->data, 0, SLOT);
        post_receive(side, memory, 0, SLOT);
        send(side, memory, 40, memory->data + SLOT, length);
        VIP_DESCRIPTOR *done = received(side);
        CHECK(done->CS.Length == length && done->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RECEIVE));
        CHECK(memcmp(memory->data, memory->data + SLOT, length) == 0);
    }
    /* Gathered from three pieces, of which only two fit the structure: the third follows in memory. */
    VIP_DESCRIPTOR *done, *three = &memory->descriptors[42];
    memset(three, 0, 2 * sizeof *three);
    three->CS.SegCount = 3;
    three->CS.Control = VIP_CONTROL_OP_SENDRECV | VIP_CONTROL_IMMEDIATE;
    three->CS.ImmediateData = 4711;
    VIP_DATA_SEGMENT *segments = (VIP_DATA_SEGMENT *)(&three->CS + 1);
    for (int piece = 0; piece < 3; piece++) {
        memset(memory->data + (2 + piece) * SLOT, 'a' + piece, 10);
        segments[piece].Data.Address = memory->data + (2 + piece) * SLOT;
        segments[piece].Handle = memory->handle;
        segments[piece].Length = 2 + piece;
    }
    post_receive(side, memory, 0, SLOT);
    EXPECT(VipRecvNotify(side->vi, side, notice), VIP_SUCCESS);
    EXPECT(VipPostSend(side->vi, three, memory->handle), VIP_SUCCESS);
    EXPECT(VipSendWait(side->vi, VIP_INFINITE, &done), VIP_SUCCESS);
    wait_for_notice();
    CHECK(memcmp(memory->data, "aabbbcccc", 9) == 0);
    /* RDMA to and from what the server has shown. */
    VIP_DESCRIPTOR *place = &memory->descriptors[44];
    strcpy(memory->data + SLOT, "written there");
    describe_rdma(place, VIP_CONTROL_OP_RDMAWRITE, memory->data + SLOT, memory->handle, 14, shown.address,
                  shown.handle);
    EXPECT(VipPostSend(side->vi, place, memory->handle), VIP_SUCCESS);
    EXPECT(VipSendWait(side->vi, LIMIT, &done), VIP_SUCCESS);
    CHECK(done->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_WRITE));
    memset(memory->data, 0, SLOT);
    describe_rdma(place, VIP_CONTROL_OP_RDMAREAD, memory->data, memory->handle, 14, shown.address, shown.handle);
    EXPECT(VipPostSend(side->vi, place, memory->handle), VIP_SUCCESS);
    EXPECT(VipSendWait(side->vi, LIMIT, &done), VIP_SUCCESS);
    CHECK(done->CS.Status == (VIP_STATUS_DONE | VIP_STATUS_OP_RDMA_READ) && strcmp(memory->data, "written there") == 0);
    VIP_COUNTERS counters;
    EXPECT(VipQuerySystemManagementInfo(side->nic, VIP_SMI_COUNTERS, &counters), VIP_SUCCESS);
    CHECK(counters.DescriptorsPushed >= ROUNDS && counters.Refused == 0);
    CHECK(memory->allocated ? counters.CopiedInBytes == 0 && counters.SparedBytes > 0 : counters.CopiedOutBytes > 0);
}

/* A message that is too long for its receive: an error in both descriptors, and the end of a reliable connection. */
static void overrun(Side *side, Memory *memory) {
    VIP_DESCRIPTOR *done, *place = describe(&memory->descriptors[40], VIP_CONTROL_OP_SENDRECV, memory->data,
                                            memory->handle, 2 * SLOT);
    EXPECT(VipPostSend(side->vi, place, memory->handle), VIP_SUCCESS);
    EXPECT(VipSendWait(side->vi, LIMIT, &done), VIP_DESCRIPTOR_ERROR);
    CHECK(done->CS.Status & VIP_STATUS_REMOTE_DESC_ERROR);
    VIP_VI_STATE state;
    EXPECT(VipQueryVi(side->vi, &state, NULL, NULL, NULL), VIP_SUCCESS);
    CHECK(state == VIP_STATE_ERROR);
}

static pid_t start(unsigned number, int allocated) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        serve(number, allocated);
        exit(0);
    }
    return child;
}

static void end(pid_t child) {
    int status;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(void) {
    for (int turn = 0; turn < 6; turn++) {
        unsigned number = (unsigned)getpid() * 16 + turn * 2;
        pid_t child = start(number, turn & 1);
        Side side = open_side(NULL);
        Memory memory = take(&side, turn >> 1 & 1);
        Shown shown = meet(&side, &memory, number);
        if (turn < 4) {
            talk(&side, &memory, shown);
            if (turn & 1) overrun(&side, &memory);
            EXPECT(VipDisconnect(side.vi), VIP_SUCCESS);
            end(child);
        } else {
            /* It is killed while a receive waits for it. */
            VIP_DESCRIPTOR *done;
            EXPECT(VipErrorCallback(side.nic, &side, notice_error), VIP_SUCCESS);
            post_receive(&side, &memory, 0, SLOT);
            kill(child, SIGKILL);
            EXPECT(VipRecvWait(side.vi, VIP_INFINITE, &done), VIP_DESCRIPTOR_ERROR);
            CHECK(done->CS.Status & VIP_STATUS_DESC_FLUSHED_ERROR);
            wait_for_notice();
            EXPECT(VipDisconnect(side.vi), VIP_SUCCESS);
            CHECK(waitpid(child, NULL, 0) == child);
        }
        give_back(&side, &memory);
        close_side(&side, NULL);
    }
    printf("No Errors\n");
    return 0;
}

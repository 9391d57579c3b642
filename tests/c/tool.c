/* The tool information interface: settings, counters and events, before MPI_Init, while it runs, and after its end. */
#include "check.h"
#include <unistd.h>

#define IS(call, code) check_fact((call) == (code), #call " == " #code, __FILE__, __LINE__)

/* Strings: the whole length with its zero comes back, what fits is written. */
static void strings(int index)
{
    char name[200] = "", cut[5] = "####";
    int length = 0, wanted, verbosity, scope, bind;
    MPI_Datatype type;
    MPI_T_enum enumeration;
    OK(MPI_T_cvar_get_info(index, NULL, &length, &verbosity, &type, &enumeration, NULL, NULL, &bind, &scope));
    CHECK(length > 5);
    wanted = length;
    length = sizeof name;
    OK(MPI_T_cvar_get_info(index, name, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(length == wanted && (int)strlen(name) + 1 == wanted);
    length = 4;
    OK(MPI_T_cvar_get_info(index, cut, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(length == wanted && strlen(cut) == 3 && strncmp(cut, name, 3) == 0 && cut[4] == 0);
    length = 0;
    cut[0] = '#';
    OK(MPI_T_cvar_get_info(index, cut, &length, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
    CHECK(length == wanted && cut[0] == '#');
    OK(MPI_T_cvar_get_info(index, cut, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));
}

/* Every variable there is can be asked, found by its name and read. */
static void all_cvars(void)
{
    int count = 0;
    OK(MPI_T_cvar_get_num(&count));
    CHECK(count > 5);
    for (int i = 0; i < count; i++) {
        char name[200], desc[2000], text[4096];
        int name_len = sizeof name, desc_len = sizeof desc, verbosity, bind, scope, found = -1, elements = 0;
        MPI_Datatype type = MPI_DATATYPE_NULL;
        MPI_T_enum enumeration;
        MPI_T_cvar_handle handle;
        OK(MPI_T_cvar_get_info(i, name, &name_len, &verbosity, &type, &enumeration, desc, &desc_len, &bind, &scope));
        CHECK(strncmp(name, "FERROVIA_", 9) == 0 && desc_len > 10);
        CHECK(verbosity >= MPI_T_VERBOSITY_USER_BASIC && verbosity <= MPI_T_VERBOSITY_MPIDEV_ALL);
        CHECK(bind == MPI_T_BIND_NO_OBJECT && (scope == MPI_T_SCOPE_LOCAL || scope == MPI_T_SCOPE_ALL_EQ));
        OK(MPI_T_cvar_get_index(name, &found));
        CHECK(found == i);
        OK(MPI_T_cvar_handle_alloc(i, NULL, &handle, &elements));
        CHECK(type == MPI_CHAR ? elements <= (int)sizeof text : elements == 1);
        OK(MPI_T_cvar_read(handle, text));
        if (enumeration != MPI_T_ENUM_NULL) {
            int items = 0, value, item, length = sizeof name;
            char word[100];
            CHECK(type == MPI_INT);
            memcpy(&value, text, sizeof value);
            OK(MPI_T_enum_get_info(enumeration, &items, name, &length));
            CHECK(items >= 2 && value >= 0 && value < items);
            for (int k = 0; k < items; k++) {
                length = sizeof word;
                OK(MPI_T_enum_get_item(enumeration, k, &item, word, &length));
                CHECK(item == k && length > 1);
            }
            IS(MPI_T_enum_get_item(enumeration, items, &item, word, &length), MPI_T_ERR_INVALID_ITEM);
        }
        OK(MPI_T_cvar_handle_free(&handle));
        CHECK(handle == MPI_T_CVAR_HANDLE_NULL);
        IS(MPI_T_cvar_handle_free(&handle), MPI_T_ERR_INVALID_HANDLE);
    }
    strings(0);
    IS(MPI_T_cvar_get_index("NO_SUCH_VARIABLE", &count), MPI_T_ERR_INVALID_NAME);
    IS(MPI_T_cvar_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), MPI_T_ERR_INVALID_INDEX);
    IS(MPI_T_cvar_get_info(100000, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL), MPI_T_ERR_INVALID_INDEX);
}

static MPI_T_cvar_handle cvar(const char *name)
{
    MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
    int index = -1, count;
    OK(MPI_T_cvar_get_index(name, &index));
    OK(MPI_T_cvar_handle_alloc(index, NULL, &handle, &count));
    return handle;
}

/* Before MPI_Init everything can be set; what cannot be is refused and changes nothing. */
static void write_before_init(void)
{
    unsigned long long bytes = 0, small = 3000, odd = 12345, before = 0, by_itself = ~0ULL;
    int choice = -1, read = -1, automatic = -1, wrong = 77;
    char text[1024] = "", none[1024] = "";
    MPI_T_cvar_handle eager = cvar("FERROVIA_EAGER_MAX"), channel = cvar("FERROVIA_CHANNEL");
    MPI_T_cvar_handle unexpected = cvar("FERROVIA_UNEXPECTED_MAX");
    MPI_T_cvar_handle copy = cvar("FERROVIA_LARGE_COPY"), spin = cvar("FERROVIA_SPIN");
    MPI_T_cvar_handle collectives = cvar("FERROVIA_COLLECTIVES");
    OK(MPI_T_cvar_write(eager, &small));
    OK(MPI_T_cvar_read(eager, &bytes));
    CHECK(bytes == small);
    OK(MPI_T_cvar_read(channel, &before));
    IS(MPI_T_cvar_write(channel, &odd), MPI_T_ERR_INVALID);
    OK(MPI_T_cvar_read(channel, &bytes));
    CHECK(bytes == before);
    OK(MPI_T_cvar_write(eager, &by_itself));
    OK(MPI_T_cvar_read(eager, &bytes));
    CHECK(bytes == by_itself);
    OK(MPI_T_cvar_write(eager, &small));
    IS(MPI_T_cvar_write(unexpected, &by_itself), MPI_T_ERR_INVALID);
    OK(MPI_T_cvar_read(copy, &choice));
    OK(MPI_T_cvar_write(copy, &choice));
    IS(MPI_T_cvar_write(copy, &wrong), MPI_T_ERR_INVALID);
    OK(MPI_T_cvar_read(copy, &read));
    CHECK(read == choice);
    OK(MPI_T_cvar_write(spin, &automatic));
    OK(MPI_T_cvar_read(collectives, none));
    strcpy(text, "allreduce=recursive_doubling");
    OK(MPI_T_cvar_write(collectives, text));
    memset(text, 0, sizeof text);
    OK(MPI_T_cvar_read(collectives, text));
    CHECK(strcmp(text, "allreduce=recursive_doubling") == 0);
    OK(MPI_T_cvar_write(collectives, none));
    OK(MPI_T_cvar_handle_free(&eager));
    OK(MPI_T_cvar_handle_free(&channel));
    OK(MPI_T_cvar_handle_free(&unexpected));
    OK(MPI_T_cvar_handle_free(&copy));
    OK(MPI_T_cvar_handle_free(&spin));
    OK(MPI_T_cvar_handle_free(&collectives));
}

static int pvar_index(const char *name, int var_class)
{
    int index = -1;
    OK(MPI_T_pvar_get_index(name, var_class, &index));
    return index;
}

/* Every performance variable says what it is and can be read, by a handle and a session. */
static void all_pvars(void)
{
    int count = 0;
    MPI_T_pvar_session session, other;
    MPI_Comm comm = MPI_COMM_SELF;
    OK(MPI_T_pvar_get_num(&count));
    CHECK(count > 10);
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_session_create(&other));
    for (int i = 0; i < count; i++) {
        char name[200], desc[500];
        int name_len = sizeof name, desc_len = sizeof desc, verbosity, var_class, bind, readonly, continuous, atomic;
        int found = -1, elements = 0, running = 0, ended = 0;
        MPI_Datatype type;
        MPI_T_enum enumeration;
        MPI_T_pvar_handle handle;
        unsigned long long value = 99;
        OK(MPI_T_pvar_get_info(i, name, &name_len, &verbosity, &var_class, &type, &enumeration, desc, &desc_len, &bind,
                              &readonly, &continuous, &atomic));
        CHECK(type == MPI_UNSIGNED_LONG_LONG && enumeration == MPI_T_ENUM_NULL);
        OK(MPI_T_pvar_get_index(name, var_class, &found));
        CHECK(found == i);
        IS(MPI_T_pvar_get_index(name, MPI_T_PVAR_CLASS_STATE, &found), MPI_T_ERR_INVALID_NAME);
        OK(MPI_Initialized(&running));
        OK(MPI_Finalized(&ended));
        if (bind == MPI_T_BIND_MPI_COMM) {
            IS(MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &elements), MPI_T_ERR_INVALID_HANDLE);
            if (!running || ended)
                continue;
        }
        OK(MPI_T_pvar_handle_alloc(session, i, bind == MPI_T_BIND_MPI_COMM ? &comm : NULL, &handle, &elements));
        CHECK(elements == 1);
        IS(MPI_T_pvar_read(other, handle, &value), MPI_T_ERR_INVALID_HANDLE);
        IS(MPI_T_pvar_handle_free(other, &handle), MPI_T_ERR_INVALID_HANDLE);
        if (continuous) {
            IS(MPI_T_pvar_start(session, handle), MPI_T_ERR_PVAR_NO_STARTSTOP);
            IS(MPI_T_pvar_stop(session, handle), MPI_T_ERR_PVAR_NO_STARTSTOP);
        } else {
            OK(MPI_T_pvar_start(session, handle));
        }
        OK(MPI_T_pvar_read(session, handle, &value));
        if (var_class == MPI_T_PVAR_CLASS_COUNTER)
            CHECK(value == 0);
        if (readonly) {
            IS(MPI_T_pvar_write(session, handle, &value), MPI_T_ERR_PVAR_NO_WRITE);
            IS(MPI_T_pvar_reset(session, handle), MPI_T_ERR_PVAR_NO_WRITE);
        } else {
            value = 5;
            OK(MPI_T_pvar_write(session, handle, &value));
            OK(MPI_T_pvar_readreset(session, handle, &value));
            CHECK(value == 5);
            OK(MPI_T_pvar_read(session, handle, &value));
            CHECK(value == 0 || var_class == MPI_T_PVAR_CLASS_LOWWATERMARK);
        }
        if (i % 2)
            OK(MPI_T_pvar_handle_free(session, &handle));
    }
    OK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES));
    OK(MPI_T_pvar_session_free(&session));
    CHECK(session == MPI_T_PVAR_SESSION_NULL);
    IS(MPI_T_pvar_session_free(&session), MPI_T_ERR_INVALID_SESSION);
    OK(MPI_T_pvar_session_free(&other));
    IS(MPI_T_pvar_get_info(count, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
       MPI_T_ERR_INVALID_INDEX);
}

static void all_categories(void)
{
    int count = 0, root = -1, cvars = 0, pvars = 0, events = 0, all, update = -1;
    OK(MPI_T_category_get_num(&count));
    OK(MPI_T_category_get_index("ferrovia", &root));
    CHECK(root == 0);
    for (int i = 0; i < count; i++) {
        char name[100], desc[200];
        int name_len = sizeof name, desc_len = sizeof desc, n_cvars, n_pvars, n_categories, n_events, indices[200];
        OK(MPI_T_category_get_info(i, name, &name_len, desc, &desc_len, &n_cvars, &n_pvars, &n_categories));
        OK(MPI_T_category_get_num_events(i, &n_events));
        OK(MPI_T_category_get_cvars(i, 200, indices));
        OK(MPI_T_category_get_pvars(i, 200, indices));
        OK(MPI_T_category_get_events(i, 200, indices));
        indices[1] = -9;
        OK(MPI_T_category_get_categories(i, 1, indices));
        CHECK(indices[1] == -9 && (n_categories == 0 || indices[0] == 1));
        cvars += n_cvars;
        pvars += n_pvars;
        events += n_events;
    }
    OK(MPI_T_cvar_get_num(&all));
    CHECK(all == cvars);
    OK(MPI_T_pvar_get_num(&all));
    CHECK(all == pvars);
    OK(MPI_T_event_get_num(&all));
    CHECK(all == events);
    OK(MPI_T_category_changed(&update));
    CHECK(update == 0);
    IS(MPI_T_category_get_index("no such category", &root), MPI_T_ERR_INVALID_NAME);
    IS(MPI_T_category_get_cvars(count, 0, NULL), MPI_T_ERR_INVALID_INDEX);
}

/* Counters count only while they run, each handle for itself. */
static void counters(void)
{
    MPI_T_pvar_session session;
    MPI_T_pvar_handle first, second, bound;
    MPI_Comm comm, gone;
    unsigned long long value = 0;
    int count, index = pvar_index("sends_to_self", MPI_T_PVAR_CLASS_COUNTER), byte = 0;
    MPI_Request request;
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, &first, &count));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, &second, &count));
    for (int round = 0; round < 4; round++) {
        if (round == 1)
            OK(MPI_T_pvar_start(session, first));
        if (round == 2)
            OK(MPI_T_pvar_start(session, second));
        if (round == 3)
            OK(MPI_T_pvar_stop(session, first));
        OK(MPI_Irecv(&byte, 1, MPI_BYTE, 0, 1, MPI_COMM_SELF, &request));
        OK(MPI_Send(&byte, 1, MPI_BYTE, 0, 1, MPI_COMM_SELF));
        OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    OK(MPI_T_pvar_read(session, first, &value));
    CHECK(value == 2);
    OK(MPI_T_pvar_readreset(session, second, &value));
    CHECK(value == 2);
    OK(MPI_T_pvar_read(session, second, &value));
    CHECK(value == 0);
    OK(MPI_T_pvar_read(session, first, &value));
    CHECK(value == 2);

    /* Bound to a communicator: others do not count, and a freed one is noticed. */
    OK(MPI_Comm_dup(MPI_COMM_WORLD, &comm));
    gone = comm;
    index = pvar_index("collectives_started", MPI_T_PVAR_CLASS_COUNTER);
    OK(MPI_T_pvar_handle_alloc(session, index, &comm, &bound, &count));
    OK(MPI_T_pvar_start(session, bound));
    OK(MPI_Barrier(comm));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_Barrier(comm));
    OK(MPI_T_pvar_read(session, bound, &value));
    CHECK(value == 2);
    OK(MPI_Comm_free(&comm));
    IS(MPI_T_pvar_read(session, bound, &value), MPI_T_ERR_INVALID_HANDLE);
    IS(MPI_T_pvar_handle_alloc(session, index, &gone, &bound, &count), MPI_T_ERR_INVALID_HANDLE);
    OK(MPI_T_pvar_session_free(&session));
}

/* A watermark forgets at a reset, without disturbing the other handle. */
static void watermark(void)
{
    enum { length = 2000 };
    static char data[length];
    MPI_T_pvar_session session;
    MPI_T_pvar_handle early, late;
    unsigned long long value = 0;
    int count, index = pvar_index("unexpected_bytes_watermark", MPI_T_PVAR_CLASS_HIGHWATERMARK);
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, &early, &count));
    OK(MPI_T_pvar_handle_alloc(session, index, NULL, &late, &count));
    OK(MPI_Send(data, length, MPI_BYTE, 0, 2, MPI_COMM_SELF));
    OK(MPI_Recv(data, length, MPI_BYTE, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_T_pvar_reset(session, late));
    OK(MPI_Send(data, 100, MPI_BYTE, 0, 2, MPI_COMM_SELF));
    OK(MPI_Recv(data, length, MPI_BYTE, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_T_pvar_read(session, early, &value));
    CHECK(value >= length);
    OK(MPI_T_pvar_read(session, late, &value));
    CHECK(value >= 100 && value < length);
    OK(MPI_T_pvar_session_free(&session));
}

/* The low watermark is what the high one leaves of the budget; it can be set, and reset to the level of now. */
static void low_watermark(void)
{
    enum { length = 3000 };
    static char data[length];
    MPI_T_pvar_session session;
    MPI_T_pvar_handle high, low;
    MPI_T_cvar_handle limit = cvar("FERROVIA_UNEXPECTED_MAX");
    unsigned long long budget = 0, most = 0, least = 0, value = 0;
    int count;
    OK(MPI_T_cvar_read(limit, &budget));
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_handle_alloc(session, pvar_index("unexpected_bytes_watermark", MPI_T_PVAR_CLASS_HIGHWATERMARK), NULL,
                              &high, &count));
    OK(MPI_T_pvar_handle_alloc(session, pvar_index("unexpected_room_watermark", MPI_T_PVAR_CLASS_LOWWATERMARK), NULL,
                              &low, &count));
    OK(MPI_T_pvar_read(session, low, &value));
    OK(MPI_Send(data, length, MPI_BYTE, 0, 2, MPI_COMM_SELF));
    OK(MPI_Recv(data, length, MPI_BYTE, 0, 2, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_T_pvar_read(session, high, &most));
    OK(MPI_T_pvar_read(session, low, &least));
    CHECK(most >= length && least < value && least + most == budget);
    least = 7;
    OK(MPI_T_pvar_write(session, low, &least));
    OK(MPI_T_pvar_readreset(session, low, &least));
    CHECK(least == 7);
    OK(MPI_T_pvar_read(session, low, &least));
    CHECK(least > budget - most);
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_cvar_handle_free(&limit));
}

/* Rank 0 waits for rank 1, which lets it wait until it has slept; a timer that is stopped keeps its value. */
static void timer(void)
{
    enum { rounds_max = 1000 };
    MPI_T_pvar_session session;
    MPI_T_pvar_handle asleep;
    unsigned long long before = 0, after = 0, again = 0;
    int count, goes_on = world_size > 1;
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_handle_alloc(session, pvar_index("time_asleep", MPI_T_PVAR_CLASS_TIMER), NULL, &asleep, &count));
    OK(MPI_T_pvar_start(session, asleep));
    OK(MPI_T_pvar_read(session, asleep, &before));
    CHECK(before == 0);
    for (int round = 0; goes_on && world_rank < 2; round++) {
        if (world_rank == 0) {
            OK(MPI_T_pvar_read(session, asleep, &after));
            goes_on = after == 0 && round < rounds_max;
            OK(MPI_Send(&goes_on, 1, MPI_INT, 1, 9, MPI_COMM_WORLD));
            OK(MPI_Recv(&count, 1, MPI_INT, 1, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        } else {
            OK(MPI_Recv(&goes_on, 1, MPI_INT, 0, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
            if (goes_on)
                usleep(10000);
            OK(MPI_Send(&goes_on, 1, MPI_INT, 0, 9, MPI_COMM_WORLD));
        }
    }
    OK(MPI_T_pvar_stop(session, asleep));
    OK(MPI_T_pvar_read(session, asleep, &after));
    CHECK(world_rank != 0 || world_size == 1 || after > 0);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    OK(MPI_T_pvar_read(session, asleep, &again));
    CHECK(again == after);
    OK(MPI_T_pvar_reset(session, asleep));
    OK(MPI_T_pvar_read(session, asleep, &again));
    CHECK(again == 0);
    OK(MPI_T_pvar_session_free(&session));
}

/* A setting changed while MPI runs is obeyed from then on; those that cannot change say so. */
static void write_while_running(void)
{
    MPI_T_pvar_session session;
    MPI_T_pvar_handle rendezvous;
    MPI_T_cvar_handle eager = cvar("FERROVIA_EAGER_MAX"), channel = cvar("FERROVIA_CHANNEL");
    static const unsigned long long expected[] = {1, 1, 2};
    unsigned long long bytes, sent = 0;
    static char data[4000];
    int count, peer = world_rank ^ 1;
    OK(MPI_T_cvar_read(channel, &bytes));
    IS(MPI_T_cvar_write(channel, &bytes), MPI_T_ERR_CVAR_SET_NOT_NOW);
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_handle_alloc(session, pvar_index("rendezvous_sends", MPI_T_PVAR_CLASS_COUNTER), NULL, &rendezvous,
                              &count));
    OK(MPI_T_pvar_start(session, rendezvous));
    for (int round = 0; round < 3 && world_size % 2 == 0; round++) {
        /* 3000 was written before MPI_Init. */
        bytes = round == 1 ? 8000 : 3000;
        if (round > 0)
            OK(MPI_T_cvar_write(eager, &bytes));
        OK(MPI_Sendrecv_replace(data, sizeof data, MPI_BYTE, peer, 3, peer, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        OK(MPI_T_pvar_read(session, rendezvous, &sent));
        CHECK(sent == expected[round]);
    }
    OK(MPI_T_pvar_session_free(&session));
    OK(MPI_T_cvar_handle_free(&eager));
    OK(MPI_T_cvar_handle_free(&channel));
}

struct seen {
    /* With `only`, events of other tags are passed over. */
    int count, tag, peer, nested, only;
    unsigned long long bytes, last_bytes;
    MPI_Count last_time;
    MPI_T_event_registration registration;
};

static void on_event(MPI_T_event_instance instance, MPI_T_event_registration registration, MPI_T_cb_safety safety,
                     void *user_data)
{
    struct seen *seen = user_data;
    struct {
        unsigned long long bytes;
        int peer, tag;
    } copy;
    MPI_Count time = 0;
    int source = -1, one = 1, sum = 0;
    CHECK(safety == MPI_T_CB_REQUIRE_NONE && registration == seen->registration);
    OK(MPI_T_event_copy(instance, &copy));
    if (seen->only && copy.tag != seen->only)
        return;
    OK(MPI_T_event_read(instance, 0, &seen->bytes));
    OK(MPI_T_event_read(instance, 1, &seen->peer));
    OK(MPI_T_event_read(instance, 2, &seen->tag));
    IS(MPI_T_event_read(instance, 3, &sum), MPI_T_ERR_INVALID_INDEX);
    CHECK(copy.bytes == seen->bytes && copy.peer == seen->peer && copy.tag == seen->tag);
    OK(MPI_T_event_get_timestamp(instance, &time));
    OK(MPI_T_event_get_source(instance, &source));
    CHECK(time >= seen->last_time && source == 0);
    seen->last_time = time;
    seen->count++;
    /* A callback may call MPI, and what that causes is told afterwards. */
    if (seen->nested) {
        seen->nested = 0;
        OK(MPI_Sendrecv(&one, 1, MPI_INT, 0, 8, &sum, 1, MPI_INT, 0, 8, MPI_COMM_SELF, MPI_STATUS_IGNORE));
        CHECK(sum == 1);
    }
}

static int freed;

static void on_free(MPI_T_event_registration registration, MPI_T_cb_safety safety, void *user_data)
{
    (void)registration;
    (void)safety;
    freed += *(int *)user_data;
}

static long long dropped;

static void on_dropped(MPI_Count count, MPI_T_event_registration registration, int source, MPI_T_cb_safety safety,
                       void *user_data)
{
    struct seen *seen = user_data;
    (void)safety;
    CHECK(registration == seen->registration && source == 0);
    dropped += count;
}

static MPI_T_event_registration watch(const char *name, struct seen *seen)
{
    int index = -1;
    OK(MPI_T_event_get_index(name, &index));
    OK(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &seen->registration));
    OK(MPI_T_event_register_callback(seen->registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, seen, on_event));
    return seen->registration;
}

static void all_events(void)
{
    int count = 0, sources = 0;
    MPI_Count first = 0, second = 0;
    OK(MPI_T_source_get_num(&sources));
    CHECK(sources == 1);
    for (int i = 0; i < sources; i++) {
        char name[100], desc[200];
        int name_len = sizeof name, desc_len = sizeof desc;
        MPI_T_source_order order;
        MPI_Count ticks, most;
        MPI_Info info = MPI_INFO_NULL;
        OK(MPI_T_source_get_info(i, name, &name_len, desc, &desc_len, &order, &ticks, &most, &info));
        CHECK(order == MPI_T_SOURCE_ORDERED && ticks > 0 && most > ticks && info != MPI_INFO_NULL);
        OK(MPI_Info_free(&info));
        OK(MPI_T_source_get_timestamp(i, &first));
        OK(MPI_T_source_get_timestamp(i, &second));
        CHECK(second >= first && first > 0);
    }
    IS(MPI_T_source_get_timestamp(sources, &first), MPI_T_ERR_INVALID_INDEX);
    OK(MPI_T_event_get_num(&count));
    CHECK(count > 3);
    for (int i = 0; i < count; i++) {
        char name[100], desc[200];
        int name_len = sizeof name, desc_len = sizeof desc, verbosity, elements = 10, bind, found = -1;
        MPI_Datatype types[10];
        MPI_Aint displacements[10];
        MPI_T_enum enumeration;
        MPI_Info info = MPI_INFO_NULL;
        OK(MPI_T_event_get_info(i, name, &name_len, &verbosity, types, displacements, &elements, &enumeration, &info,
                               desc, &desc_len, &bind));
        CHECK(elements == 3 && types[0] == MPI_UNSIGNED_LONG_LONG && types[2] == MPI_INT && displacements[2] == 12);
        OK(MPI_Info_free(&info));
        elements = 0;
        OK(MPI_T_event_get_info(i, NULL, NULL, NULL, NULL, NULL, &elements, NULL, NULL, NULL, NULL, NULL));
        CHECK(elements == 3);
        OK(MPI_T_event_get_index(name, &found));
        CHECK(found == i);
    }
    IS(MPI_T_event_get_index("no such event", &count), MPI_T_ERR_INVALID_NAME);
}

static void events(void)
{
    struct seen unexpected = {0}, completed = {0}, silent = {0};
    int data[3] = {1, 2, 3}, one = 1, index;
    MPI_Request request;
    MPI_Info info;
    /* Nobody is told before there is a callback, or after the registration is gone. */
    OK(MPI_T_event_get_index("message_unexpected", &index));
    OK(MPI_T_event_handle_alloc(index, NULL, MPI_INFO_NULL, &silent.registration));
    watch("message_unexpected", &unexpected);
    watch("request_completed", &completed);
    completed.nested = 1;
    OK(MPI_T_event_set_dropped_handler(unexpected.registration, on_dropped));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    unexpected.count = completed.count = 0;
    OK(MPI_Send(data, 3, MPI_INT, 0, 41, MPI_COMM_SELF));
    OK(MPI_Probe(0, 41, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_Recv(data, 3, MPI_INT, 0, 41, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_Irecv(data, 3, MPI_INT, 0, 42, MPI_COMM_SELF, &request));
    OK(MPI_Send(data, 2, MPI_INT, 0, 42, MPI_COMM_SELF));
    OK(MPI_Wait(&request, MPI_STATUS_IGNORE));
    /* Events are handed over while MPI polls. */
    for (int i = 0, flag; i < 100 && (!unexpected.count || !completed.count); i++)
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    CHECK(unexpected.count >= 1 && completed.count >= 1 && !completed.nested);
    CHECK(dropped == 0 && silent.count == 0);

    /* Too many at once: what is lost is counted. */
    for (int i = 0; i < 6000; i++)
        OK(MPI_Send(NULL, 0, MPI_INT, 0, 43, MPI_COMM_SELF));
    unexpected.count = 0;
    for (int i = 0; i < 6000; i++)
        OK(MPI_Recv(NULL, 0, MPI_INT, 0, 43, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    for (int i = 0, flag; i < 3; i++)
        OK(MPI_Iprobe(MPI_ANY_SOURCE, 50, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE));
    CHECK(unexpected.count + dropped >= 6000 && dropped > 0);

    OK(MPI_T_event_handle_get_info(unexpected.registration, &info));
    OK(MPI_Info_free(&info));
    OK(MPI_T_event_callback_get_info(unexpected.registration, MPI_T_CB_REQUIRE_NONE, &info));
    OK(MPI_Info_free(&info));
    // Hints that nobody knows change nothing, and are not remembered.
    MPI_Info hints;
    int hint_count;
    OK(MPI_Info_create(&hints));
    OK(MPI_Info_set(hints, "colour", "red"));
    OK(MPI_T_event_handle_set_info(unexpected.registration, hints));
    OK(MPI_T_event_callback_set_info(unexpected.registration, MPI_T_CB_REQUIRE_NONE, hints));
    OK(MPI_Info_free(&hints));
    OK(MPI_T_event_handle_get_info(unexpected.registration, &hints));
    OK(MPI_Info_get_nkeys(hints, &hint_count));
    IS(hint_count, 0);
    OK(MPI_Info_free(&hints));
    OK(MPI_T_event_register_callback(completed.registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, NULL));
    OK(MPI_T_event_handle_free(unexpected.registration, &one, on_free));
    CHECK(freed == 1);
    IS(MPI_T_event_handle_set_info(unexpected.registration, MPI_INFO_NULL), MPI_T_ERR_INVALID_HANDLE);
    IS(MPI_T_event_callback_set_info(unexpected.registration, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL),
       MPI_T_ERR_INVALID_HANDLE);
    IS(MPI_T_event_handle_free(unexpected.registration, &one, on_free), MPI_T_ERR_INVALID_HANDLE);
    unexpected.count = completed.count = 0;
    OK(MPI_Send(data, 3, MPI_INT, 0, 44, MPI_COMM_SELF));
    OK(MPI_Recv(data, 3, MPI_INT, 0, 44, MPI_COMM_SELF, MPI_STATUS_IGNORE));
    OK(MPI_Barrier(MPI_COMM_WORLD));
    CHECK(unexpected.count == 0 && completed.count == 0);
    OK(MPI_T_event_handle_free(completed.registration, NULL, NULL));
    OK(MPI_T_event_handle_free(silent.registration, NULL, NULL));
}

/* A message of another process that comes before its receive is told with its sender and tag. */
static void event_of_a_peer(void)
{
    struct seen seen = {.only = 61};
    int data[5] = {0}, ready = 0;
    if (world_size % 2)
        return;
    watch("message_unexpected", &seen);
    OK(MPI_Barrier(MPI_COMM_WORLD));
    if (world_rank % 2 == 0) {
        OK(MPI_Send(data, 5, MPI_INT, world_rank + 1, 61, MPI_COMM_WORLD));
        OK(MPI_Send(&ready, 1, MPI_INT, world_rank + 1, 62, MPI_COMM_WORLD));
    } else {
        int found = 0;
        OK(MPI_Recv(&ready, 1, MPI_INT, world_rank - 1, 62, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
        for (int i = 0; i < 100 && !(found = seen.count > 0); i++)
            OK(MPI_Iprobe(world_rank - 1, 61, MPI_COMM_WORLD, &found, MPI_STATUS_IGNORE));
        CHECK(seen.count == 1 && seen.tag == 61 && seen.peer == world_rank - 1 && seen.bytes == 5 * sizeof(int));
        OK(MPI_Recv(data, 5, MPI_INT, world_rank - 1, 61, MPI_COMM_WORLD, MPI_STATUS_IGNORE));
    }
    OK(MPI_T_event_handle_free(seen.registration, NULL, NULL));
}

int main(int argc, char **argv)
{
    int provided = -1, count;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    unsigned long long before = 0, after = 0;
    IS(MPI_T_cvar_get_num(&count), MPI_T_ERR_NOT_INITIALIZED);
    IS(MPI_T_pvar_session_create(&session), MPI_T_ERR_NOT_INITIALIZED);
    IS(MPI_T_finalize(), MPI_T_ERR_NOT_INITIALIZED);
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    CHECK(provided == MPI_THREAD_SINGLE);
    OK(MPI_T_init_thread(MPI_THREAD_SERIALIZED, &provided));
    CHECK(provided == MPI_THREAD_SERIALIZED);
    OK(MPI_T_finalize());
    all_cvars();
    all_pvars();
    all_categories();
    all_events();
    write_before_init();
    OK(MPI_T_pvar_session_create(&session));
    OK(MPI_T_pvar_handle_alloc(session, pvar_index("sends_to_self", MPI_T_PVAR_CLASS_COUNTER), NULL, &handle, &count));
    OK(MPI_T_pvar_start(session, handle));

    start(&argc, &argv);
    /* The program has begun without a thought of threads: it is too late for a tool's. */
    OK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided));
    CHECK(provided == MPI_THREAD_SERIALIZED);
    OK(MPI_T_finalize());
    all_cvars();
    all_pvars();
    counters();
    watermark();
    low_watermark();
    timer();
    write_while_running();
    events();
    event_of_a_peer();
    OK(MPI_T_pvar_read(session, handle, &before));
    CHECK(before > 6000);
    provided = finish();

    /* Counters outlive MPI_Finalize, the tool interface MPI. */
    OK(MPI_T_pvar_read(session, handle, &after));
    all_cvars();
    all_pvars();
    if (after < before || failures)
        return 1;
    OK(MPI_T_finalize());
    IS(MPI_T_cvar_get_num(&count), MPI_T_ERR_NOT_INITIALIZED);
    OK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided));
    IS(MPI_T_pvar_read(session, handle, &after), MPI_T_ERR_INVALID_SESSION);
    OK(MPI_T_finalize());
    return failures ? 1 : 0;
}

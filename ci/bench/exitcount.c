/* Counts the instructions that each CPU executes between two markers in a guest: those of the hypervisor (upper half of
 * the address space) and those of the guest (lower half, where the micro-guests are linked). QEMU TCG plugin.
 *
 * A marker is a no-op that never exits: nop dword ptr [rax + disp32] (0f 1f 80 disp32) with disp32 = 0x7e000000 +
 * kind * 0x10000 + id, kind 0 = start, 1 = stop, and any 16-bit id.
 *
 * Each start-stop pair on a CPU adds one line to the file of the argument `out=PATH`:
 *     ID CPU HYPERVISOR GUEST
 * in decimal. With `profile=ID`, the file PATH.profile gets one line for each instruction of the hypervisor that ran in the
 * last interval ID of a CPU, `ADDRESS COUNT` in hexadecimal and decimal, in no order; this makes the run slower.
 *
 * With `markers=hypervisor` the markers are the hypervisor's own.
 *
 * Build: cc -O2 -Wall -shared -fPIC -fvisibility=hidden exitcount.c -o exitcount.so
 * Run: qemu-system-x86_64 -plugin exitcount.so,out=PATH ...
 */
#include "qemu_plugin_abi.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

PLUGIN_EXPORT int qemu_plugin_version = PLUGIN_ABI_VERSION;

#define UPPER_HALF 0xffff800000000000u
#define MARKER_TAG 0x7e00u
#define MAX_CPUS 512

/* Per CPU; QEMU adds to the counters without calling us. */
struct counters {
    uint64_t hypervisor;
    uint64_t guest;
};

static qemu_plugin_u64 hypervisor;
static qemu_plugin_u64 guest;
static FILE *out;

/* The open pair of each CPU. Only that CPU's own markers touch it. */
static struct {
    bool open;
    uint16_t id;
    struct counters at;
} started[MAX_CPUS];

/* A translated instruction of the hypervisor, when profiling. Never freed: translation may refer to it for ever. */
struct hot {
    struct hot *next;
    uint64_t address;
    uint64_t count;
};

static struct hot *all_hot;
static const char *profile_path;
static long profiled = -1;
/* Where markers are looked for. */
static bool markers_in_hypervisor;
/* The CPU in the profiled interval, or -1: one at a time. */
static volatile int profiling = -1;

static void on_hot(unsigned int cpu, void *userdata)
{
    if (profiling == (int)cpu)
        ((struct hot *)userdata)->count++;
}

static void start_profile(unsigned int cpu)
{
    for (struct hot *h = __atomic_load_n(&all_hot, __ATOMIC_ACQUIRE); h; h = h->next)
        h->count = 0;
    profiling = (int)cpu;
}

static void end_profile(void)
{
    FILE *f = fopen(profile_path, "w");

    profiling = -1;
    if (!f)
        return;
    for (struct hot *h = __atomic_load_n(&all_hot, __ATOMIC_ACQUIRE); h; h = h->next)
        if (h->count)
            fprintf(f, "%" PRIx64 " %" PRIu64 "\n", h->address, h->count);
    fclose(f);
}

static void profile_insn(struct qemu_plugin_insn *insn)
{
    struct hot *h = calloc(1, sizeof *h);

    if (!h)
        return;
    h->address = qemu_plugin_insn_vaddr(insn);
    h->next = __atomic_load_n(&all_hot, __ATOMIC_RELAXED);
    while (!__atomic_compare_exchange_n(&all_hot, &h->next, h, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    qemu_plugin_register_vcpu_insn_exec_cb(insn, on_hot, QEMU_PLUGIN_CB_NO_REGS, h);
}

static void on_marker(unsigned int cpu, void *userdata)
{
    uint32_t marker = (uint32_t)(uintptr_t)userdata;
    uint16_t id = (uint16_t)marker;
    struct counters now = {qemu_plugin_u64_get(hypervisor, cpu), qemu_plugin_u64_get(guest, cpu)};

    if (cpu >= MAX_CPUS)
        return;
    if ((marker >> 16 & 0xff) == 0) {
        started[cpu].open = true;
        started[cpu].id = id;
        started[cpu].at = now;
        if (id == profiled)
            start_profile(cpu);
    } else if (started[cpu].open && started[cpu].id == id) {
        started[cpu].open = false;
        if (id == profiled)
            end_profile();
        fprintf(out, "%u %u %" PRIu64 " %" PRIu64 "\n", id, cpu, now.hypervisor - started[cpu].at.hypervisor,
                now.guest - started[cpu].at.guest);
        fflush(out);
    }
}

/* The disp32 of a marker, or 0. */
static uint32_t marker_of(const struct qemu_plugin_insn *insn)
{
    uint8_t b[7];
    uint32_t disp;

    if (qemu_plugin_insn_size(insn) != sizeof b || qemu_plugin_insn_data(insn, b, sizeof b) != sizeof b)
        return 0;
    if (b[0] != 0x0f || b[1] != 0x1f || b[2] != 0x80)
        return 0;
    disp = (uint32_t)b[3] | (uint32_t)b[4] << 8 | (uint32_t)b[5] << 16 | (uint32_t)b[6] << 24;
    return disp >> 16 == MARKER_TAG || disp >> 16 == MARKER_TAG + 1 ? disp : 0;
}

static void on_translate(qemu_plugin_id_t id, struct qemu_plugin_tb *tb)
{
    size_t n = qemu_plugin_tb_n_insns(tb);

    (void)id;
    for (size_t i = 0; i < n; i++) {
        struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
        bool upper = qemu_plugin_insn_vaddr(insn) >= UPPER_HALF;
        uint32_t marker = upper == markers_in_hypervisor ? marker_of(insn) : 0;

        /* One by one, not per block: a block may be left in its middle by an exit. */
        qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64,
                                                            upper ? hypervisor : guest, 1);
        if (upper && profiled >= 0)
            profile_insn(insn);
        if (marker)
            qemu_plugin_register_vcpu_insn_exec_cb(insn, on_marker, QEMU_PLUGIN_CB_NO_REGS,
                                                   (void *)(uintptr_t)marker);
    }
}

PLUGIN_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const qemu_info_t *info, int argc, char **argv)
{
    const char *path = NULL;
    struct qemu_plugin_scoreboard *score;

    for (int i = 0; i < argc; i++) {
        if (strncmp(argv[i], "out=", 4) == 0) {
            path = argv[i] + 4;
        } else if (strncmp(argv[i], "profile=", 8) == 0) {
            profiled = strtol(argv[i] + 8, NULL, 10);
        } else if (strcmp(argv[i], "markers=hypervisor") == 0) {
            markers_in_hypervisor = true;
        } else {
            fprintf(stderr, "exitcount: unknown argument %s\n", argv[i]);
            return -1;
        }
    }
    if (!path || !info->system_emulation || info->version.cur < PLUGIN_ABI_VERSION) {
        fprintf(stderr, "exitcount: needs out=PATH, a system emulator, and plugin interface %d (this one has %d)\n",
                PLUGIN_ABI_VERSION, info->version.cur);
        return -1;
    }
    out = fopen(path, "w");
    if (!out) {
        fprintf(stderr, "exitcount: cannot write %s: %s\n", path, strerror(errno));
        return -1;
    }
    if (profiled >= 0) {
        size_t len = strlen(path) + sizeof ".profile";
        char *name = malloc(len);

        if (!name)
            return -1;
        snprintf(name, len, "%s.profile", path);
        profile_path = name;
    }
    score = qemu_plugin_scoreboard_new(sizeof(struct counters));
    hypervisor = (qemu_plugin_u64){score, offsetof(struct counters, hypervisor)};
    guest = (qemu_plugin_u64){score, offsetof(struct counters, guest)};
    qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate);
    return 0;
}

// Finds accesses that nothing puts in order, in a kernel that the emulator runs.
//
// The compiler reports every read and write (-fsanitize=thread, with the functions below in the place of its library);
// those of shared memory and of the streams' arrays are looked at. Two accesses of one number by different warps, one of
// them a write, must be in order by barriers and flags, in whatever order they happened: each warp has a vector clock, a
// barrier joins those of all who met there, and a flag carries its writer's to whoever reads it. So one run finds what
// falling behind at random may miss. A warp counts as one: what its lanes do among themselves is not looked at.

#include <map>

namespace race {

using Clock = std::vector<int>;

struct Number {
    int writer = -1, written = 0;
    Clock read;  // by each warp
};

struct Region {
    char* base;
    size_t size;
    std::vector<Number> numbers;
};

// Never taken down: accesses are reported to the very end.
static auto& arrays = *new std::vector<std::pair<void*, size_t>>;  // of all streams
static auto& clocks = *new std::vector<Clock>;
static auto& regions = *new std::vector<Region>;
static auto& flags = *new std::map<const int*, Clock>;
static int found;

// What is done here is reported too, and not looked at.
#define UNSEEN __attribute__((noinline, no_sanitize("thread")))
static bool busy = true;  // before the first kernel there is nothing to look at
struct Busy {
    UNSEEN Busy() { busy = true; }
    UNSEEN ~Busy() { busy = false; }
};

static int own_warp() { return emulator::current / 32; }
static void tick(int warp) { clocks[warp][warp]++; }

static void join(Clock& into, const Clock& other) {
    for (size_t i = 0; i < into.size(); i++) into[i] = std::max(into[i], other[i]);
}

static void watch(void* base, size_t bytes) {
    regions.push_back({static_cast<char*>(base), bytes, std::vector<Number>(bytes / sizeof(REAL) + 1)});
}

struct Checked : emulator::Order {
    void start() override {
        const Busy here;
        const int warps = int(emulator::warps.size());
        clocks.assign(warps, Clock(warps));
        for (int warp = 0; warp < warps; warp++) tick(warp);
        regions.clear(), flags.clear();
        for (emulator::Block& block : emulator::blocks) watch(block.memory, emulator::BYTES);
        for (auto& [base, bytes] : arrays) watch(base, bytes);
    }

    void met(int first, int count) override {
        const Busy here;
        Clock all(clocks.size());
        for (int i = first; i < first + count; i++) join(all, clocks[i]);
        for (int i = first; i < first + count; i++) clocks[i] = all, tick(i);
    }

    void released(const int* flag) override {
        const Busy here;
        flags[flag] = clocks[own_warp()];
        tick(own_warp());
    }

    void acquired(const int* flag) override {
        const Busy here;
        if (flags.count(flag)) join(clocks[own_warp()], flags[flag]);
    }
};
static Checked checked;

static void look_at(Number& number, bool writes) {
    const int warp = own_warp();
    const Clock& now = clocks[warp];
    if (number.writer >= 0 && number.written > now[number.writer]) found++;
    if (writes) {
        for (size_t i = 0; i < number.read.size(); i++) found += number.read[i] > now[i];
        number.writer = warp, number.written = now[warp];
        number.read.clear();
    } else {
        if (number.read.empty()) number.read.resize(now.size());
        number.read[warp] = now[warp];
    }
}

static void report(void* place, size_t bytes, bool writes) {
    char* p = static_cast<char*>(place);
    for (Region& region : regions)
        if (p >= region.base && p < region.base + region.size)
            for (size_t i = 0; i < bytes; i += sizeof(REAL))
                look_at(region.numbers[(p + i - region.base) / sizeof(REAL)], writes);
}

UNSEEN static void hear(void* place, size_t bytes, bool writes) {
    if (busy) return;
    const Busy here;
    report(place, bytes, writes);
}

}  // namespace race

#define HOOK extern "C" UNSEEN void
#define REPORTED(bytes)                                                      \
    HOOK __tsan_read##bytes(void* p) { race::hear(p, bytes, false); }          \
    HOOK __tsan_write##bytes(void* p) { race::hear(p, bytes, true); }          \
    HOOK __tsan_unaligned_read##bytes(void* p) { race::hear(p, bytes, false); } \
    HOOK __tsan_unaligned_write##bytes(void* p) { race::hear(p, bytes, true); }
REPORTED(1)
REPORTED(2)
REPORTED(4)
REPORTED(8)
REPORTED(16)
HOOK __tsan_read_range(void* p, size_t bytes) { race::hear(p, bytes, false); }
HOOK __tsan_write_range(void* p, size_t bytes) { race::hear(p, bytes, true); }
HOOK __tsan_func_entry(void*) {}
HOOK __tsan_func_exit() {}
HOOK __tsan_init() {}
HOOK __tsan_vptr_update(void**, void*) {}
HOOK __tsan_vptr_read(void**) {}
extern "C" int races() { return race::found; }

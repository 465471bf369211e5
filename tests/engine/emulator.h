// Runs a CUDA kernel on the host, one fiber a thread of the block: slow, exact in its order, and without a GPU.
//
// A fiber runs until it has to wait for others, at a barrier of its block or cluster or at a shuffle of its warp; then the
// next goes on. Blocks and warps fall behind at random, so that a missing barrier shows. Whoever wants to know what puts
// one access before another is told (`Order`, see racecheck.h).

#include <setjmp.h>
#include <ucontext.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <functional>
#include <memory>
#include <random>
#include <vector>

using std::exp;
using std::sqrt;
using std::tanh;

#define __device__
#define __global__
#define __shared__
#define __restrict__
#define __launch_bounds__(...)

struct Index {
    int x;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

static Index threadIdx, blockIdx;  // of the fiber that runs

namespace emulator {

constexpr int BYTES = 256 * 1024;  // of shared memory

constexpr int STACK = 128 * 1024;  // of a fiber

struct Fiber {
    ucontext_t begin;  // the way onto its own stack
    jmp_buf at;        // where it goes on; unlike swapcontext, a jump asks nothing of the kernel
    bool started, done;
};

struct Barrier {
    int waiting, round;
};

struct Warp {
    double value[2][32];  // two, since a fast lane may be one shuffle ahead
    Barrier barrier;
};

struct alignas(64) Block {
    char memory[BYTES];
    Barrier barrier;
};

static int threads, current, first_block, cluster_size;
static std::vector<Fiber> fibers;
static std::vector<std::unique_ptr<char[]>> stacks;  // kept from run to run
static std::vector<Warp> warps;
static std::vector<Block> blocks;  // of one stream
static std::vector<Barrier> clusters;
static jmp_buf scheduler;
static std::function<void()> body;

struct Order {
    virtual void start() {}
    virtual void met(int first_warp, int count) {}
    virtual void released(const int* flag) {}
    virtual void acquired(const int* flag) {}
};
static Order nobody, *order = &nobody;

static void run(int fiber) {
    current = fiber;
    threadIdx.x = fiber % threads;
    blockIdx.x = first_block + fiber / threads;
    if (_setjmp(scheduler)) return;
    if (fibers[fiber].started) _longjmp(fibers[fiber].at, 1);
    fibers[fiber].started = true;
    setcontext(&fibers[fiber].begin);
}

static void yield() {
    if (!_setjmp(fibers[current].at)) _longjmp(scheduler, 1);
}

template <class Done>
static void wait_for(Barrier& barrier, int count, Done done) {
    const int round = barrier.round;
    if (++barrier.waiting == count) {
        barrier.waiting = 0;
        barrier.round++;
        done();
    } else {
        while (barrier.round == round) yield();
    }
}

static void run_fiber() {
    body();
    fibers[current].done = true;
    yield();
}

static int own_index() { return blockIdx.x - first_block; }
static Block& own_block() { return blocks[own_index()]; }
static Warp& own_warp() { return warps[current / 32]; }

// All threads of so many blocks, from the given one on.
static void meet_blocks(Barrier& barrier, int first, int count) {
    const int of_block = threads / 32;
    wait_for(barrier, count * threads, [=] { order->met(first * of_block, count * of_block); });
}

static void meet_warp() {
    wait_for(own_warp().barrier, 32, [] {});
}

// The blocks of one stream, of `size` threads each and `of_cluster` to a cluster, from block `first` on.
static void run_blocks(int first, int count, int of_cluster, int size, std::function<void()> kernel) {
    body = kernel, threads = size, first_block = first, cluster_size = of_cluster;
    clusters = std::vector<Barrier>(count / of_cluster);
    fibers = std::vector<Fiber>(count * size);
    warps = std::vector<Warp>(count * size / 32);
    blocks = std::vector<Block>(count);
    order->start();
    while (stacks.size() < fibers.size()) stacks.emplace_back(new char[STACK]);
    for (size_t i = 0; i < fibers.size(); i++) {
        ucontext_t& context = fibers[i].begin;
        getcontext(&context);
        context.uc_stack.ss_sp = stacks[i].get();
        context.uc_stack.ss_size = STACK;
        makecontext(&context, run_fiber, 0);
    }
    std::minstd_rand draw;
    std::vector<int> pauses(count * (1 + size / 32));  // of blocks and of warps: turns that they are still left out
    const auto pauses_now = [&](int who) {
        if (!pauses[who] && draw() % 32 == 0) pauses[who] = draw() % 64;
        return pauses[who] && pauses[who]--;
    };
    for (int left = count * size; left;)
        for (int block = 0; block < count; block++) {
            if (pauses_now(block)) continue;
            for (int first = block * size; first < (block + 1) * size; first += 32) {
                if (pauses_now(count + first / 32)) continue;
                for (int i = first; i < first + 32; i++) {
                    if (fibers[i].done) continue;
                    run(i);
                    left -= fibers[i].done;
                }
            }
        }
}

}  // namespace emulator

static void __syncthreads() { emulator::meet_blocks(emulator::own_block().barrier, emulator::own_index(), 1); }
static void __syncwarp() { emulator::meet_warp(); }
static void cluster_barrier() {
    const int size = emulator::cluster_size, own = emulator::own_index() / size;
    emulator::meet_blocks(emulator::clusters[own], own * size, size);
}
static char* shared_memory() { return emulator::own_block().memory; }

template <class T>
static T* in_block(T* p, int rank) {
    const int own = emulator::own_index(), block = own - own % emulator::cluster_size + rank;
    return reinterpret_cast<T*>(emulator::blocks[block].memory + (reinterpret_cast<char*>(p) - shared_memory()));
}

static int read_flag(const int* p) {
    emulator::yield();
    emulator::order->acquired(p);
    return *p;
}
static void write_flag(int* p, int value) {
    emulator::order->released(p);
    *p = value;
}
static int atomicAdd(int* p, int value) { return (*p += value) - value; }

template <class T>
static T __shfl_sync(unsigned, T value, int from) {
    emulator::Warp& warp = emulator::own_warp();
    const int half = warp.barrier.round % 2;
    warp.value[half][threadIdx.x % 32] = value;
    emulator::meet_warp();
    return T(warp.value[half][from]);
}

template <class T>
static T __shfl_xor_sync(unsigned mask, T value, int gap) {
    return __shfl_sync(mask, value, (threadIdx.x % 32) ^ gap);
}

static long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }
static float4 __ldcg(const float4* p) { return *p; }

// Runs a CUDA kernel on the host, one fiber a thread of the block: slow, exact in its order, and without a GPU.
//
// A fiber runs until it has to wait for others, at a barrier of its block or cluster or at a shuffle of its warp; then the
// next goes on.

#include <ucontext.h>

#include <cmath>
#include <cstdlib>
#include <functional>
#include <vector>

using std::exp;
using std::sqrt;
using std::tanh;

#define __device__
#define __global__
#define __shared__
#define __restrict__
#define __launch_bounds__(threads)

struct Index {
    int x;
};

struct alignas(16) float4 {
    float x, y, z, w;
};

static Index threadIdx, blockIdx;  // of the fiber that runs

namespace emulator {

constexpr int BYTES = 256 * 1024;  // of shared memory

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
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

static int threads, current, first_block;
static std::vector<Fiber> fibers;
static std::vector<Warp> warps;
static std::vector<Block> blocks;  // of one cluster
static Barrier cluster;
static ucontext_t scheduler;
static std::function<void()> body;

static void run(int fiber) {
    current = fiber;
    threadIdx.x = fiber % threads;
    blockIdx.x = first_block + fiber / threads;
    swapcontext(&scheduler, &fibers[fiber].context);
}

static void yield() { swapcontext(&fibers[current].context, &scheduler); }

static void wait_for(Barrier& barrier, int count) {
    const int round = barrier.round;
    if (++barrier.waiting == count) {
        barrier.waiting = 0;
        barrier.round++;
    } else {
        while (barrier.round == round) yield();
    }
}

static void run_fiber() {
    body();
    fibers[current].done = true;
    yield();
}

static Block& own_block() { return blocks[blockIdx.x - first_block]; }

// The blocks of one cluster, of `size` threads each, from block `first` on.
static void run_cluster(int first, int count, int size, std::function<void()> kernel) {
    body = kernel, threads = size, first_block = first, cluster = {};
    fibers = std::vector<Fiber>(count * size);
    warps = std::vector<Warp>(count * size / 32);
    blocks = std::vector<Block>(count);
    for (Fiber& fiber : fibers) {
        fiber.stack.resize(128 * 1024);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        makecontext(&fiber.context, run_fiber, 0);
    }
    for (int left = count * size; left;)
        for (int i = 0; i < count * size; i++) {
            if (fibers[i].done) continue;
            run(i);
            left -= fibers[i].done;
        }
}

}  // namespace emulator

static void __syncthreads() { emulator::wait_for(emulator::own_block().barrier, emulator::threads); }
static void cluster_barrier() { emulator::wait_for(emulator::cluster, int(emulator::fibers.size())); }
static char* shared_memory() { return emulator::own_block().memory; }

template <class Real>
static Real* in_block(Real* p, int block) {
    return reinterpret_cast<Real*>(emulator::blocks[block].memory + (reinterpret_cast<char*>(p) - shared_memory()));
}

template <class Real>
static Real __shfl_xor_sync(unsigned, Real value, int gap) {
    emulator::Warp& warp = emulator::warps[emulator::current / 32];
    const int lane = threadIdx.x % 32, half = warp.barrier.round % 2;
    warp.value[half][lane] = value;
    emulator::wait_for(warp.barrier, 32);
    return Real(warp.value[half][lane ^ gap]);
}

static float4 __ldcg(const float4* p) { return *p; }

// Runs a CUDA kernel on the host, one fiber a thread of the block: slow, exact in its order, and without a GPU.
//
// A fiber runs until it has to wait for others, at a barrier of the block or at a shuffle of its warp; then the next goes on.

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
alignas(64) char memory[256 * 1024];

namespace emulator {

struct Fiber {
    ucontext_t context;
    std::vector<char> stack;
    bool done;
};

static std::vector<Fiber> fibers;
static ucontext_t scheduler;
static std::function<void()> body;
static int waiting, round_of_block;

struct Warp {
    double value[2][32];  // two, since a fast lane may be one shuffle ahead
    int waiting, round;
};

static std::vector<Warp> warps;

static void yield() {
    const int self = threadIdx.x;
    swapcontext(&fibers[self].context, &scheduler);
    threadIdx.x = self;
}

static void run_fiber() {
    const int self = threadIdx.x;
    body();
    fibers[self].done = true;
    swapcontext(&fibers[self].context, &scheduler);
}

static void run_block(int threads, std::function<void()> kernel) {
    body = kernel;
    waiting = round_of_block = 0;
    fibers = std::vector<Fiber>(threads);
    warps = std::vector<Warp>(threads / 32);
    for (Fiber& fiber : fibers) {
        fiber.stack.resize(256 * 1024);
        getcontext(&fiber.context);
        fiber.context.uc_stack.ss_sp = fiber.stack.data();
        fiber.context.uc_stack.ss_size = fiber.stack.size();
        makecontext(&fiber.context, run_fiber, 0);
    }
    for (int left = threads; left;)
        for (int i = 0; i < threads; i++) {
            if (fibers[i].done) continue;
            threadIdx.x = i;
            swapcontext(&scheduler, &fibers[i].context);
            left -= fibers[i].done;
        }
}

}  // namespace emulator

static void __syncthreads() {
    using namespace emulator;
    const int round = round_of_block;
    if (++waiting == int(fibers.size())) {
        waiting = 0;
        round_of_block++;
    } else {
        while (round_of_block == round) yield();
    }
}

template <class Real>
static Real __shfl_xor_sync(unsigned, Real value, int gap) {
    emulator::Warp& warp = emulator::warps[threadIdx.x / 32];
    const int lane = threadIdx.x % 32, round = warp.round;
    warp.value[round % 2][lane] = value;
    if (++warp.waiting == 32) {
        warp.waiting = 0;
        warp.round++;
    } else {
        while (warp.round == round) emulator::yield();
    }
    return Real(warp.value[round % 2][lane ^ gap]);
}

static float4 __ldcg(const float4* p) { return *p; }

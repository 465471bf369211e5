// The recurrence of a chunk on a GPU, forward and backward: streams side by side, event after event.
//
// The notation is that of tsnn/engine/forward.py, the adjoints those of backward.py and frames.py, the arrays and
// switches those of layout.py. Two warps hold the endpoints, source and destination; the others take leaves of the active graph in turn, while the endpoints are busy; the whole
// block shares the layers of the networks, two rows at a time. A warp keeps a vector of D numbers in its lanes. All sums
// have a fixed order.
//
// An event is the work of a team: a thread block, or a cluster of them. In a cluster the first block has the endpoints;
// layers are shared by columns, leaves one by one. What a block needs of another is written straight into its shared
// memory (`tell`), and read after the next `meet`.
//
// A stream has one team or several. Each takes the next event that nobody has taken, waits for those versions that
// another team is still to write (`await`), and says when its own are there (`publish`). Two events that share a node
// are so in order, and each is computed as one team alone would: results do not depend on how many there are, to the
// last bit. Whoever waits, waits for an event that was taken before its own; so it never waits for a team that has yet
// to get a multiprocessor.
//
// Put before this text (`source` of cuda.py): `real`; the sizes and switches of `Dims` as constants D, K, KR (reflectors
// applied: K, or 0 without transport), W, ROUNDS, FRAME_UPDATE, KEPT, CARRY_OVER; CLUSTER (blocks of a team), THREADS,
// SHARED_BYTES, VEC (numbers that a thread loads at once) and RESIDENT: the layers whose weights stay in shared memory,
// one bit each in the order of Layer; with TIMED the first stream's first thread keeps the time. Then the structs Plan,
// Sizes, Weights, Tape and Grads from the tables of layout.py. Weights are matrices as VEC inputs of one output after
// the other, see `layer`; of the GRU both, the message's first.
//
// Contents, in this order:
//
//     The blocks of a team          meet, tell; Clock; Stream, what a block works with
//     Teams that take turns         await, publish, take, announce, next_turn
//     Vectors of a warp             Vec: load, store, axpy, total
//     Frames                        Frame: project, coefficients, lift, lower, open_frame
//     Layers                        layer, a dense layer for two rows; weights in shared memory
//     The active graph of an event  Star; stalks before and after a round; pulls of leaves; prefetching
//     Forward                       read_ends, frame_step, move_frame, carry_over, update_stalks, diffuse; measure
//     Backward                      FrameGrad, close_frame; the adjoint of each stage, last to first
//     At the end of both            the kernels: open_rows, forward, measure_events; backward, close_rows

constexpr int E = (D + 31) / 32;  // numbers of a vector in each lane
constexpr int KD = K * D, KF = KR > 0 ? KR : 1, WARPS = THREADS / 32;
constexpr int WIDE = KD > 4 * D ? KD : 4 * D;
enum Pass { FORWARD, BACKWARD };
constexpr int SECOND[2] = {3 * D, D};  // from this output on the GRU reads its second input

// ---------------------------------------------------------------------------------------------------------------
// The blocks of a team
// ---------------------------------------------------------------------------------------------------------------

#ifdef __CUDA_ARCH__  // elsewhere whoever runs the kernels has these
extern __shared__ char memory[];
__device__ char* shared_memory() { return memory; }

__device__ void cluster_barrier() {
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
    asm volatile("barrier.cluster.wait.acquire;" ::: "memory");
}

// The same place in the shared memory of another block of the cluster.
template <class T>
__device__ T* in_block(T* p, int block) {
    T* there;
    asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(p), "r"(block));
    return there;
}

// A flag between blocks: who reads what was written sees all that its writer had seen.
__device__ int read_flag(const int* p) {
    int value;
    asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(value) : "l"(p) : "memory");
    return value;
}

__device__ void write_flag(int* p, int value) {
    asm volatile("st.release.gpu.global.s32 [%0], %1;" ::"l"(p), "r"(value) : "memory");
}
#endif

#if CLUSTER > 1 && defined(__CUDA_ARCH__)
#define BLOCKS __cluster_dims__(CLUSTER, 1, 1)
#else
#define BLOCKS
#endif

__device__ int rank() { return CLUSTER > 1 ? blockIdx.x % CLUSTER : 0; }

// All blocks of the team in step: what they wrote before, anywhere, the others read after.
__device__ void meet() {
    if constexpr (CLUSTER > 1)
        cluster_barrier();
    else
        __syncthreads();
}

// p = value, in every block's shared memory, or in the first one's.
__device__ void tell(real* p, real value) {
    if constexpr (CLUSTER == 1) *p = value;
#pragma unroll
    for (int block = 0; block < CLUSTER && CLUSTER > 1; block++) *in_block(p, block) = value;
}

__device__ void tell_first(real* p, real value) {
    if constexpr (CLUSTER > 1) p = in_block(p, 0);
    *p = value;
}

// Adds what has passed since the last call to a stage's cycles.
struct Clock {
    long long* cycles;
    long long last;

    __device__ void lap(int stage) {
        if (!TIMED || blockIdx.x || threadIdx.x) return;
        const long long now = clock64();
        if (stage >= 0) cycles[stage] += now - last;
        last = now;
    }
};

// This block's stream, and its arrays.
__device__ int stream_index(const Sizes& z) { return blockIdx.x / (CLUSTER * z.teams); }

template <class Pointers>
__device__ Pointers own(const Sizes& z, Pointers all, long long stride) {
    real** field = reinterpret_cast<real**>(&all);
#pragma unroll
    for (int i = 0; i < int(sizeof(Pointers) / sizeof(real*)); i++) field[i] += stream_index(z) * stride;
    return all;
}

// All that a block works with: one stream's arrays.
struct Stream {
    Plan plan;
    Sizes z;
    Weights w;
    Tape tape;
    real eta;
    int* turns;
    int warp;
};

// The number of a warp in its block, from its first lane, so that the compiler knows it for all: it then need not be ready
// for lanes that part ways wherever warps do, nor gather them before every shuffle.
__device__ int warp_index() { return __shfl_sync(0xffffffffu, int(threadIdx.x) >> 5, 0); }

__device__ Stream own_stream(const Plan& plan, const Sizes& z, const Weights& weights, const Tape& tapes) {
    const int i = stream_index(z);
    int* turns = z.turns + i * (z.n + 1ll);
    return {plan, z, own(z, weights, z.weights), own(z, tapes, z.tape), real(z.eta[i]), turns, warp_index()};
}

// ---------------------------------------------------------------------------------------------------------------
// Teams that take turns
// ---------------------------------------------------------------------------------------------------------------

// How far an event is. Going back, gradients of its leaves are there long before those of its endpoints.
enum Reached { UNDER_WAY, LEAVES, ALL };

// Wait for an event, coded as twice its number, plus one if its leaves alone will not do; negative: for nothing.
__device__ void await(const Stream& st, int code) {
    if (st.z.teams == 1 || code < 0) return;
    while (read_flag(st.turns + (code >> 1)) < (code & 1 ? ALL : LEAVES)) {
    }
}

// One thread says how far the team has got; it has met all that wrote. In the last warp, which can best be spared.
__device__ bool is_speaker() { return rank() == 0 && threadIdx.x == THREADS - 1; }

__device__ void publish(const Stream& st, int e, Reached reached) {
    if (st.z.teams > 1 && is_speaker()) write_flag(st.turns + e, reached);
}

// The team's next event in the order of the pass: `take` asks early, since the answer is long on its way; `announce`
// comes between two meetings after it, and `next_turn` after the last.
__device__ int take(const Stream& st) { return st.z.teams > 1 && is_speaker() ? atomicAdd(st.turns + st.z.n, 1) : 0; }

__device__ void announce(const Stream& st, int taken, int* turn) {
    if (st.z.teams == 1 || !is_speaker()) return;
    for (int block = 0; block < CLUSTER; block++) *(CLUSTER > 1 ? in_block(turn, block) : turn) = taken;
}

__device__ int first_turn(const Stream& st, int* turn) {
    if (st.z.teams == 1) return 0;
    announce(st, take(st), turn);
    meet();
    return *turn;
}

__device__ int next_turn(const Stream& st, int now, const int* turn) { return st.z.teams == 1 ? now + 1 : *turn; }

// Ask for a cache line.
__device__ void touch(const void* p) {
#ifdef __CUDA_ARCH__
    asm volatile("prefetch.global.L1 [%0];" ::"l"(p));
#endif
}

// What the plan says of the next event: the waits of this one have emptied the cache.
template <Pass PASS>
__device__ void touch_plan(const Stream& st, int turn) {
    if (st.z.teams == 1 || !is_speaker() || turn >= st.z.n) return;
    const Plan& plan = st.plan;
    const int e = PASS == FORWARD ? turn : st.z.n - 1 - turn;
    const int* const waits[] = {plan.before_src, plan.before_dst, plan.after_src, plan.after_dst};
    const int* const others[] = {plan.src_h, plan.dst_h, plan.src_F, plan.dst_F, plan.act_ptr, plan.is_loop};
#pragma unroll
    for (int i = 0; i < 6; i++) touch(others[i] + e);
#pragma unroll
    for (int i = 0; i < 2; i++) touch(waits[2 * PASS + i] + e);
}

// ---------------------------------------------------------------------------------------------------------------
// Vectors of a warp
// ---------------------------------------------------------------------------------------------------------------

struct Vec {
    real v[E];
};

__device__ int lane() { return threadIdx.x & 31; }

// A warp's number among all of the team, and among those that take leaves.
constexpr int ENDS = 2, WORKERS = WARPS * CLUSTER, LEAF_WORKERS = (WARPS - ENDS) * CLUSTER;
__device__ int worker(const Stream& st) { return st.warp * CLUSTER + rank(); }
__device__ int leaf_worker(const Stream& st) { return (st.warp - ENDS) * CLUSTER + rank(); }

__device__ Vec load(const real* p) {
    Vec x;
#pragma unroll
    for (int i = 0; i < E; i++) {
        int c = lane() + 32 * i;
        x.v[i] = c < D ? p[c] : real(0);
    }
    return x;
}

__device__ void store(const Vec& x, real* p) {
#pragma unroll
    for (int i = 0; i < E; i++) {
        int c = lane() + 32 * i;
        if (c < D) p[c] = x.v[i];
    }
}

__device__ void tell(const Vec& x, real* p) {
#pragma unroll
    for (int i = 0; i < E; i++) {
        int c = lane() + 32 * i;
        if (c < D) tell(p + c, x.v[i]);
    }
}

__device__ Vec zero() {
    Vec x;
#pragma unroll
    for (int i = 0; i < E; i++) x.v[i] = real(0);
    return x;
}

__device__ void axpy(real c, const Vec& a, Vec& out) {
#pragma unroll
    for (int i = 0; i < E; i++) out.v[i] += c * a.v[i];
}

__device__ Vec scaled(real c, const Vec& a) {
    Vec x;
#pragma unroll
    for (int i = 0; i < E; i++) x.v[i] = c * a.v[i];
    return x;
}

__device__ Vec minus(const Vec& a, const Vec& b) {
    Vec x;
#pragma unroll
    for (int i = 0; i < E; i++) x.v[i] = a.v[i] - b.v[i];
    return x;
}

__device__ real total(real s) {
#pragma unroll
    for (int gap = 16; gap; gap >>= 1) s += __shfl_xor_sync(0xffffffffu, s, gap);
    return s;
}

__device__ real partial(const Vec& a, const Vec& b) {
    real s = 0;
#pragma unroll
    for (int i = 0; i < E; i++) s += a.v[i] * b.v[i];
    return s;
}

// ---------------------------------------------------------------------------------------------------------------
// Frames
// ---------------------------------------------------------------------------------------------------------------

struct Frame {
    Vec N[KF];
    real G[KF][KF];
};

typedef real Coef[KF];

__device__ Frame load_frame(const Tape& tape, int row) {
    Frame f;
#pragma unroll
    for (int i = 0; i < KR; i++) {
        f.N[i] = load(tape.N + ((long long)row * KR + i) * D);
#pragma unroll
        for (int j = 0; j < KR; j++) f.G[i][j] = tape.G[((long long)row * KR + i) * KR + j];
    }
    return f;
}

__device__ void load_coef(const real* p, Coef& t) {
#pragma unroll
    for (int i = 0; i < KR; i++) t[i] = p[i];
}

__device__ void store_coef(const Coef& t, real* p) {
#pragma unroll
    for (int i = 0; i < KR; i++)
        if (lane() == 0) p[i] = t[i];
}

// Sums over the lanes, side by side.
__device__ void total_all(Coef& p) {
#pragma unroll
    for (int gap = 16; gap; gap >>= 1)
#pragma unroll
        for (int i = 0; i < KR; i++) p[i] += __shfl_xor_sync(0xffffffffu, p[i], gap);
}

// 2 <N_i, x> of all reflectors.
__device__ void project(const Frame& f, const Vec& x, Coef& p) {
#pragma unroll
    for (int i = 0; i < KR; i++) p[i] = real(2) * partial(f.N[i], x);
    total_all(p);
}

// The t of U x = x - sum_i t_i N_i.
__device__ void coefficients(const Frame& f, const Vec& x, Coef& t) {
    project(f, x, t);
#pragma unroll
    for (int i = 0; i < KR; i++)
#pragma unroll
        for (int j = 0; j < i; j++) t[i] -= f.G[i][j] * t[j];
}

// The t of U^T x.
__device__ void coefficients_back(const Frame& f, const Vec& x, Coef& t) {
    project(f, x, t);
#pragma unroll
    for (int i = KR - 1; i >= 0; i--)
#pragma unroll
        for (int j = i + 1; j < KR; j++) t[i] -= f.G[i][j] * t[j];
}

__device__ Vec subtract(const Frame& f, const Coef& t, Vec x) {
#pragma unroll
    for (int i = 0; i < KR; i++) axpy(-t[i], f.N[i], x);
    return x;
}

__device__ Vec lift(const Frame& f, const Vec& x, Coef& t) {
    coefficients(f, x, t);
    return subtract(f, t, x);
}

__device__ Vec lower(const Frame& f, const Vec& x, Coef& t) {
    coefficients_back(f, x, t);
    return subtract(f, t, x);
}

// Unit reflectors and Gram matrix of version `row`, whose parameters are F. Shuffles of independent sums overlap.
__device__ Frame open_frame(const Tape& tape, int row, const Vec (&F)[K], double eps) {
    Frame f;
    Coef scale;
#pragma unroll
    for (int i = 0; i < KR; i++) scale[i] = partial(F[i], F[i]);
    total_all(scale);
#pragma unroll
    for (int i = 0; i < KR; i++) {
        const real length = sqrt(scale[i]);
        scale[i] = length > real(eps) ? real(1) / length : real(0);
        f.N[i] = scaled(scale[i], F[i]);
        store(f.N[i], tape.N + ((long long)row * KR + i) * D);
    }
#pragma unroll
    for (int i = 0; i < KR; i++) {
        Coef products;
#pragma unroll
        for (int j = 0; j < KR; j++) products[j] = j < i ? real(2) * partial(f.N[i], f.N[j]) : real(0);
        if (i > 0) total_all(products);
#pragma unroll
        for (int j = 0; j < i; j++) f.G[i][j] = f.G[j][i] = products[j];
        f.G[i][i] = real(0);
    }
    store_coef(scale, tape.inv + (long long)row * KR);
#pragma unroll
    for (int i = 0; i < KR; i++) store_coef(f.G[i], tape.G + ((long long)row * KR + i) * KR);
    return f;
}

// ---------------------------------------------------------------------------------------------------------------
// Layers: two rows, the whole block
// ---------------------------------------------------------------------------------------------------------------

struct alignas(sizeof(real) * VEC) Pack {
    real v[VEC];
};

__device__ constexpr int ceil_div(int a, int b) { return (a + b - 1) / b; }

// How the block shares a layer: columns side by side, so that lanes read neighboring numbers, and where all columns
// fit, parts of the inputs. The cheapest by loads of one thread.
__device__ constexpr int best_columns(int in, int out) {
    int best = THREADS, least = 1 << 30;
    for (int columns = 32; columns <= THREADS; columns += 32) {
        const int parts = THREADS / columns;
        if (parts > 1 && out > columns) continue;
        const int cost = ceil_div(out, columns) * ceil_div(in / VEC, parts) + (parts > 1 ? 2 + parts / 4 : 0);
        if (cost < least) least = cost, best = columns;
    }
    return best;
}

template <bool SHARED_COPY>
__device__ Pack fetch(const real* p) {
    const Pack* at = reinterpret_cast<const Pack*>(p);
    if (SHARED_COPY || VEC != 4 || sizeof(real) != 4) return *at;
    Pack x;
    const float4 y = __ldcg(reinterpret_cast<const float4*>(at));  // past the first-level cache, which leaves need
    x.v[0] = y.x, x.v[1 % VEC] = y.y, x.v[2 % VEC] = y.z, x.v[3 % VEC] = y.w;
    return x;
}

// Columns of a layer that fall to one block, and numbers of its weights.
__device__ constexpr int columns_of(Pass pass, int l) { return ceil_div(OUTPUTS[pass][l], CLUSTER); }
__device__ constexpr int kept_of(Pass pass, int l) {
    return (RESIDENT >> l) & 1 ? SIZES[l] / OUTPUTS[pass][l] * columns_of(pass, l) : 0;
}

__device__ constexpr int resident_numbers(Pass pass, int layers = NUM_LAYERS) {
    int sum = 0;
    for (int l = 0; l < layers; l++) sum += kept_of(pass, l);
    return sum;
}

// done(row, column, sum_j x[row][j] M[j][column]) for two rows of x and the block's columns; the GRU's latter columns
// read `x2` instead. Ends with all results handed over and the blocks in step.
template <Pass PASS, int L, class Done>
__device__ void layer(const Weights& w, const real* resident, const real* x, const real* x2, int ldx, real* part,
                      Done done) {
    constexpr int OUT = OUTPUTS[PASS][L], IN = SIZES[L] / OUT, SHARE = columns_of(PASS, L);
    constexpr int COLS = best_columns(IN, SHARE), PARTS = THREADS / COLS;
    constexpr int STEPS = IN / VEC / PARTS, LEFT = IN / VEC % PARTS;  // the first parts have one more
    constexpr bool HERE = (RESIDENT >> L) & 1;
    constexpr int STRIDE = HERE ? SHARE : OUT, OFFSET = resident_numbers(PASS, L);
    const int start = rank() * SHARE;
    const real* M = HERE ? resident + OFFSET : w.matrix[L] + start * VEC;
    const int c = threadIdx.x % COLS, p = threadIdx.x / COLS, begin = p * STEPS + (p < LEFT ? p : LEFT);
#pragma unroll
    for (int first = 0; first < SHARE; first += COLS) {
        const int own = first + c, column = start + own;
        if (p >= PARTS || own >= SHARE || column >= OUT) continue;
        const real* from = (L == GRU_BOTH && column >= SECOND[PASS] ? x2 : x) + begin * VEC;
        const real* weights = M + (begin * STRIDE + own) * VEC;
        real s0 = 0, s1 = 0;
        const auto add = [&](int j) {
            const Pack m = fetch<HERE>(weights + j * STRIDE * VEC);
            const Pack a = fetch<true>(from + j * VEC), b = fetch<true>(from + ldx + j * VEC);
#pragma unroll
            for (int i = 0; i < VEC; i++) s0 += m.v[i] * a.v[i], s1 += m.v[i] * b.v[i];
        };
#pragma unroll 8
        for (int j = 0; j < STEPS; j++) add(j);
        if (p < LEFT) add(STEPS);
        if constexpr (PARTS == 1) {
            done(0, column, s0);
            done(1, column, s1);
        } else {
            part[p * 2 * SHARE + own] = s0;
            part[p * 2 * SHARE + SHARE + own] = s1;
        }
    }
    if constexpr (PARTS > 1) {
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * SHARE; i += THREADS) {
            if (start + i % SHARE >= OUT) continue;
            real sum = 0;
#pragma unroll
            for (int q = 0; q < PARTS; q++) sum += part[q * 2 * SHARE + i];
            done(i / SHARE, start + i % SHARE, sum);
        }
    }
    meet();
}

// Copies the block's columns of the resident layers; the caller brings the block in step.
template <Pass PASS>
__device__ void keep_weights(const Weights& w, real* resident) {
#pragma unroll
    for (int l = 0; l < NUM_LAYERS; l++) {
        const int out = OUTPUTS[PASS][l], share = columns_of(PASS, l) * VEC, start = rank() * share;
        for (int i = threadIdx.x; i < kept_of(PASS, l); i += THREADS) {
            const int column = start + i % share;
            resident[i] = column < out * VEC ? w.matrix[l][i / share * out * VEC + column] : real(0);
        }
        resident += kept_of(PASS, l);
    }
}

// Biases and gain, wanted at every event: the copies of a block, since to wait for another empties its cache.
struct Vectors {
    real frame_bias[KD], msg_bias[D], gru_bias[6 * D], gain[D];
};

__device__ void keep_vector(real*& vector, real* copy, int count) {
    for (int i = threadIdx.x; i < count; i += THREADS) copy[i] = vector[i];
    vector = copy;
}

__device__ void keep_vectors(Weights& w, Vectors& copies) {
    keep_vector(w.frame_bias, copies.frame_bias, KD);
    keep_vector(w.msg_bias, copies.msg_bias, D);
    keep_vector(w.gru_bias, copies.gru_bias, 6 * D);
    keep_vector(w.gain, copies.gain, D);
}

__device__ real sigmoid(real x) { return real(1) / (real(1) + exp(-x)); }
__device__ real relu(real x) { return x < real(0) ? real(0) : x; }  // keeps a NaN

// ---------------------------------------------------------------------------------------------------------------
// The active graph of an event
// ---------------------------------------------------------------------------------------------------------------

struct Star {
    int first, leaf, stop;  // entries: endpoints from `first`, leaves from `leaf`
    bool loop;
    real total[2], degree[2], uv;
};

__device__ void read_star(const Plan& plan, int e, Star& out) {  // by one warp, for all
    Star star;
    star.first = plan.act_ptr[e];
    star.stop = plan.act_ptr[e + 1];
    star.loop = plan.is_loop[e] != 0;
    star.leaf = star.first + (star.loop ? 1 : 2);
    real u = 0, v = 0;
    for (int j = star.leaf + lane(); j < star.stop; j += 32) {
        u += plan.mult_src[j];
        v += plan.mult_dst[j];
    }
    u = total(u), v = total(v);
    star.uv = star.loop ? real(0) : real(plan.mult_src[star.first + 1]) + real(plan.mult_dst[star.first]);
    star.total[0] = u + star.uv;
    star.total[1] = v + star.uv;
    star.degree[0] = star.total[0] + real(plan.mult_src[star.first]);
    star.degree[1] = star.total[1] + (star.loop ? real(0) : real(plan.mult_dst[star.first + 1]));
    if (lane() == 0) out = star;
}

// What a leaf with weights a, b to source and destination is pulled to.
__device__ Vec center(real a, real b, const real* ends) {
    if (b == real(0)) return load(ends);
    if (a == real(0)) return load(ends + D);
    Vec x = scaled(a / (a + b), load(ends));
    axpy(b / (a + b), load(ends + D), x);
    return x;
}

__device__ real step_size(real eta, real degree) { return eta / (degree > real(1) ? degree : real(1)); }

// Stalk of entry j before a round, and the coefficients that lift it.
__device__ const real* stalk_before(const Stream& st, const Star& star, int e, int j, int round) {
    if (round > 0) return st.tape.mid_h + ((long long)(round - 1) * st.z.nA + j) * D;
    if (j < star.leaf) return st.tape.gru_h + (2ll * e + j - star.first) * D;
    return st.tape.h + (long long)st.plan.act_h[j] * D;
}

__device__ const real* coef_before(const Stream& st, const Star& star, int e, int j, int round) {
    if (round > 0) return st.tape.mid_t + ((long long)(round - 1) * st.z.nA + j) * KR;
    if (j < star.leaf) return st.tape.coef + ((2ll * e + j - star.first) * NUM_COEF + GRU) * KR;
    return st.tape.t_h + (long long)st.plan.act_h[j] * KR;
}

__device__ void write_after(const Stream& st, int j, int round, const Vec& h, const Coef& coef) {
    const bool last = round == ROUNDS - 1;
    const long long row = last ? st.z.n0 + j : (long long)round * st.z.nA + j;
    store(h, (last ? st.tape.h : st.tape.mid_h) + row * D);
    store_coef(coef, (last ? st.tape.t_h : st.tape.mid_t) + row * KR);
}

// Where an endpoint's numbers of one round stand in r_ends and y_ends, and an entry's in t_round.
__device__ long long at_end(const Stream& st, int e, int round, int s) {
    return (2ll * ((long long)round * st.z.n + e) + s) * D;
}

__device__ real* t_round(const Stream& st, int j, int round) {
    return st.tape.t_round + ((long long)round * st.z.nA + j) * KR;
}

// Ask for `count` numbers: of their cache lines the first, and every `lines`-th after it.
constexpr int LINE = 128 / sizeof(real);
__device__ void prefetch(const real* p, int count, int first_line, int lines) {
    for (int i = first_line * LINE; i < count; i += lines * LINE) touch(p + i);
}

// The rows of leaf j: every line, or by a whole warp a line a lane.
__device__ void prefetch_leaf(const Stream& st, int j, int first_line, int lines) {
    const long long row_F = st.plan.act_F[j], row_h = st.plan.act_h[j];
    prefetch(st.tape.N + row_F * KR * D, KR * D, first_line, lines);
    prefetch(st.tape.h + row_h * D, D, first_line, lines);
    prefetch(st.tape.G + row_F * KR * KR, KR * KR, first_line, lines);
    prefetch(st.tape.t_h + row_h * KR, KR, first_line, lines);
}

// While two warps are busy with the endpoints and a third with the star, the others ask for what the leaves will need,
// and `bring` what waits in the tape.
__device__ void prefetch_leaves(const Stream& st, int e) {
    if (CLUSTER > 1 || st.z.teams > 1) return;  // to wait for another block empties the cache
    const Plan& plan = st.plan;
    const int stop = plan.act_ptr[e + 1], first = plan.act_ptr[e] + (plan.is_loop[e] ? 1 : 2);
    for (int j = first + st.warp - 3; j < stop; j += WARPS - 3) prefetch_leaf(st, j, lane(), 32);
}

__device__ void bring(const real* from, real* to, int count) {
    for (int i = threadIdx.x - 96; i < count; i += THREADS - 96) to[i] = from[i];
}

// Leaves of a warp whose rows find room in the first-level cache beside those of the others. Shared memory is a part of
// it; the size is Hopper's, and a wrong one costs time alone.
constexpr int CACHE_BYTES = 256 * 1024;
constexpr int CACHED_LEAVES = (CACHE_BYTES - SHARED_BYTES) / (int(sizeof(real)) * (KR + 1) * D * (WARPS - ENDS));

// Wait for all leaves of this warp, a lane for each, and ask for the rows of the first few.
__device__ void await_leaves(const Stream& st, const Star& star, const int* codes) {
    if (st.z.teams == 1) return;
    const int own = star.leaf + leaf_worker(st) + lane() * LEAF_WORKERS;
    for (int j = own; j < star.stop; j += 32 * LEAF_WORKERS) await(st, codes[j]);
    __syncwarp();
    if (lane() < CACHED_LEAVES && own < star.stop) prefetch_leaf(st, own, 0, 1);
}

// Pulls of the leaves on both endpoints, as each warp sees them.
struct Pulls {
    Vec u, v;
};

__device__ void add_pull(Pulls& pulls, real a, real b, const Vec& y) {
    axpy(-a, y, pulls.u);
    axpy(-b, y, pulls.v);
}

__device__ void keep_pulls(const Stream& st, const Pulls& pulls, real* collected) {
    store(pulls.u, collected + (st.warp - ENDS) * 2 * D);
    store(pulls.v, collected + (st.warp - ENDS) * 2 * D + D);
}

// In a cluster: `count` numbers of each of a block's warps, summed in their order, for the first block; after it `meet`.
__device__ void gather(const real* collected, real* gathered, int count, int warps) {
    for (int i = threadIdx.x; i < count; i += THREADS) {
        real sum = 0;
        for (int w = 0; w < warps; w++) sum += collected[w * count + i];
        tell_first(gathered + rank() * count + i, sum);
    }
}

// total[s] ends[s] - uv ends[1 - s] + all pulls on endpoint s, in the order of the warps and of the blocks.
__device__ Vec combine(const Star& star, int s, const real* ends, const real* collected, const real* gathered) {
    Vec sum = scaled(star.total[s], load(ends + (star.loop ? 0 : s * D)));
    axpy(-star.uv, load(ends + (star.loop ? 0 : (1 - s) * D)), sum);
    const real* shares = (CLUSTER > 1 ? gathered : collected) + s * D;
    for (int i = 0; i < (CLUSTER > 1 ? CLUSTER : WARPS - ENDS); i++) axpy(real(1), load(shares + i * 2 * D), sum);
    return sum;
}

// ---------------------------------------------------------------------------------------------------------------
// Forward
// ---------------------------------------------------------------------------------------------------------------

// y, the endpoints in synchronized coordinates, and what is collected: of a round and of the next.
struct Shared {
    alignas(16) real x[4 * D], y[2][2 * D], hid[2 * W], wide[2 * 6 * D + 2 * KD];
    real share_frame[2 * W], share_msg[2 * W];
    alignas(16) real part[2 * THREADS], collected[ROUNDS > 1 ? 2 : 1][WARPS * 2 * D];
    alignas(16) real gathered[CLUSTER > 1 ? CLUSTER * 2 * D : 4];
    Vectors vectors;
    Star star;
    int turn;
    alignas(16) real resident[1];
};
static_assert(sizeof(Shared) + sizeof(real) * resident_numbers(FORWARD) <= SHARED_BYTES, "too little shared memory");

// What a warp knows of an event. The first block's first two are its endpoints: 0 the source, 1 the destination.
struct Event {
    int e, s, row_h, row_F, post_row;
    long long ends;  // row of the source in arrays of endpoints
    bool is_end;
};

__device__ Event read_event(const Stream& st, int e) {
    const int s = st.warp;
    const Plan& plan = st.plan;
    const int row_h = s ? plan.dst_h[e] : plan.src_h[e], row_F = s ? plan.dst_F[e] : plan.src_F[e];
    return {e, s, row_h, row_F, st.z.n0 + 2 * e + s, 2ll * e, s < 2 && rank() == 0};
}

__device__ real* coef_of(const Stream& st, const Event& ev, int slot) {
    return st.tape.coef + ((ev.ends + ev.s) * NUM_COEF + slot) * KR;
}

__device__ void load_parameters(const Tape& tape, int row, Vec (&F)[K]) {
#pragma unroll
    for (int i = 0; i < K; i++) F[i] = load(tape.F + ((long long)row * K + i) * D);
}

// An endpoint as its warp holds it.
struct End {
    Frame frame;
    Vec h, y, F[K];  // y: the stalk in synchronized coordinates
};

// A warp's number among all of a stream, and their number.
__device__ int stream_worker(const Stream& st) { return blockIdx.x % (CLUSTER * st.z.teams) * WARPS + st.warp; }
__device__ int stream_workers(const Stream& st) { return CLUSTER * st.z.teams * WARPS; }

// Reflectors and coefficients of the rows that the chunk begins with.
__device__ void open_initial(const Stream& st) {
    for (int row = stream_worker(st); row < st.z.n0; row += stream_workers(st)) {
        Vec F[K];
        Coef t;
        load_parameters(st.tape, row, F);
        coefficients(open_frame(st.tape, row, F, st.z.eps), load(st.tape.h + (long long)row * D), t);
        store_coef(t, st.tape.t_h + (long long)row * KR);
    }
}

// The endpoints before the event; meanwhile the star, and what will be needed.
__device__ void read_ends(const Stream& st, const Event& ev, Shared& sh, End& end) {
    const Tape& tape = st.tape;
    if (ev.is_end) {
        Coef t;
        await(st, (ev.s ? st.plan.before_dst : st.plan.before_src)[ev.e]);
        end.frame = load_frame(tape, ev.row_F);
        end.h = load(tape.h + (long long)ev.row_h * D);
        load_coef(tape.t_h + (long long)ev.row_h * KR, t);
        load_parameters(tape, ev.row_F, end.F);
        end.y = subtract(end.frame, t, end.h);
        store(end.y, sh.y[0] + ev.s * D);
        store(end.y, tape.y_pre + (ev.ends + ev.s) * D);
    } else if (ev.s == 2) {
        read_star(st.plan, ev.e, sh.star);
    } else if (ev.s > 2) {
        if (FRAME_UPDATE) bring(tape.hid_frame + ev.ends * W, sh.share_frame, 2 * W);
        bring(tape.hid_msg + ev.ends * W, sh.share_msg, 2 * W);
        prefetch_leaves(st, ev.e);
    }
}

// The endpoint's row of inputs, its own stalk and its partner's, into sh.x and the tape.
__device__ void write_inputs(const Stream& st, const Event& ev, Shared& sh, const End& end, int slot, real* rows) {
    Vec partner = end.h;  // Q_uu = I
    if (!sh.star.loop) {
        Coef t;
        partner = lower(end.frame, load(sh.y[0] + (1 - ev.s) * D), t);
        store_coef(t, coef_of(st, ev, slot));
    }
    tell(end.h, sh.x + ev.s * 2 * D);
    tell(partner, sh.x + ev.s * 2 * D + D);
    store(end.h, rows + (ev.ends + ev.s) * 2 * D);
    store(partner, rows + (ev.ends + ev.s) * 2 * D + D);
}

// Step 3 of alg:tsnn: MLP_frame on transported states (eq:frame_update); its output in sh.wide.
__device__ void frame_step(const Stream& st, const Event& ev, Shared& sh, const End& end) {
    const Tape& tape = st.tape;
    if (ev.is_end) write_inputs(st, ev, sh, end, PRE, tape.x_frame);
    meet();
    layer<FORWARD, FRAME_IN>(st.w, sh.resident, sh.x, sh.x, 2 * D, sh.part, [&](int row, int c, real sum) {
        const real hid = relu(sh.share_frame[row * W + c] + sum);
        tape.hid_frame[(ev.ends + row) * W + c] = hid;
        tell(sh.hid + row * W + c, hid);
    });
    layer<FORWARD, FRAME_OUT>(st.w, sh.resident, sh.hid, sh.hid, W, sh.part, [&](int row, int c, real sum) {
        sum += st.w.frame_bias[c];
        tape.dF[(ev.ends + row) * KD + c] = sum;
        tell_first(sh.wide + row * KD + c, sum);
    });
}

// Scale a frame's rows back to the length that all have: a reflector is its direction alone. No row shorter than eps.
__device__ void keep_length(real* stretch, Vec (&F)[K], double eps) {
    real scale[K];
#pragma unroll
    for (int i = 0; i < K; i++) scale[i] = partial(F[i], F[i]);
#pragma unroll
    for (int i = 0; i < K; i++) {
        const real length = sqrt(total(scale[i]));
        scale[i] = length > real(eps) ? sqrt(real(D) / K) / length : real(1);
        F[i] = scaled(scale[i], F[i]);
        if (lane() == 0) stretch[i] = scale[i];
    }
}

// The new frame, and the stalk under it (prop:carry_over).
__device__ void move_frame(const Stream& st, const Event& ev, Shared& sh, End& end) {
    const Tape& tape = st.tape;
#pragma unroll
    for (int i = 0; i < K; i++)
        if (FRAME_UPDATE) axpy(real(1), load(sh.wide + ev.s * KD + i * D), end.F[i]);
    if (FRAME_UPDATE && KEPT) keep_length(tape.stretch + (ev.ends + ev.s) * K, end.F, st.z.eps);
#pragma unroll
    for (int i = 0; i < K; i++) store(end.F[i], tape.F + ((long long)ev.post_row * K + i) * D);
    end.frame = open_frame(tape, ev.post_row, end.F, st.z.eps);
    Coef t;
    if (CARRY_OVER) {
        end.h = lower(end.frame, end.y, t);
        store_coef(t, coef_of(st, ev, CARRY));
    } else {
        end.y = lift(end.frame, end.h, t);
        store_coef(t, coef_of(st, ev, MOVED));
        store(end.y, tape.y_moved + (ev.ends + ev.s) * D);
    }
}

// Inputs of the message, each endpoint in its new frame.
__device__ void carry_over(const Stream& st, const Event& ev, Shared& sh, const End& end) {
    if (!CARRY_OVER) {
        if (ev.is_end) store(end.y, sh.y[0] + ev.s * D);
        __syncthreads();
    }
    if (ev.is_end) write_inputs(st, ev, sh, end, POST, st.tape.x_msg);
    meet();
}

// Step 4 of alg:tsnn: message (eq:message) and GRU (eq:gru_update), whose layers' outputs are in the first block's
// sh.wide.
__device__ void update_stalks(const Stream& st, const Event& ev, Shared& sh) {
    const Tape& tape = st.tape;
    layer<FORWARD, MSG_IN>(st.w, sh.resident, sh.x, sh.x, 2 * D, sh.part, [&](int row, int c, real sum) {
        const real hid = relu(sh.share_msg[row * W + c] + sum);
        tape.hid_msg[(ev.ends + row) * W + c] = hid;
        tell(sh.hid + row * W + c, hid);
    });
    // the message stands in rows as far apart as the states, which the other half of the GRU reads
    layer<FORWARD, MSG_OUT>(st.w, sh.resident, sh.hid, sh.hid, W, sh.part, [&](int row, int c, real sum) {
        sum += st.w.msg_bias[c];
        tape.m[(ev.ends + row) * D + c] = sum;
        tell(sh.x + row * 2 * D + D + c, sum);
    });
    layer<FORWARD, GRU_BOTH>(
        st.w, sh.resident, sh.x + D, sh.x, 2 * D, sh.part,
        [&](int row, int c, real sum) { tell_first(sh.wide + row * 6 * D + c, sum + st.w.gru_bias[c]); });
}

// The endpoint's new stalk, and the same in synchronized coordinates.
__device__ void finish_stalk(const Stream& st, const Event& ev, Shared& sh, End& end) {
    const real *a = sh.wide + ev.s * 6 * D, *b = a + 3 * D, *carried = sh.x + ev.s * 2 * D;
    real* gates = st.tape.gates + (ev.ends + ev.s) * 4 * D;
#pragma unroll
    for (int i = 0; i < E; i++) {
        const int c = lane() + 32 * i;
        if (c >= D) continue;
        const real reset = sigmoid(a[c] + b[c]), update = sigmoid(a[D + c] + b[D + c]), state = b[2 * D + c];
        const real candidate = tanh(a[2 * D + c] + reset * state), hbar = carried[c];
        gates[c] = reset, gates[D + c] = update, gates[2 * D + c] = candidate, gates[3 * D + c] = state;
        end.h.v[i] = candidate + update * (hbar - candidate);
    }
    store(end.h, st.tape.gru_h + (ev.ends + ev.s) * D);
    Coef t;
    end.y = lift(end.frame, end.h, t);
    store_coef(t, coef_of(st, ev, GRU));
    tell(end.y, sh.y[0] + ev.s * D);
    store(end.y, st.tape.y_ends + (ev.ends + ev.s) * D);
}

// h' = h - c D q, q the sum of eq:diffusion_local in the entry's own coordinates.
__device__ void step_along(real c, const Vec& gain, const Vec& q, Vec& h) {
#pragma unroll
    for (int i = 0; i < E; i++) h.v[i] -= c * gain.v[i] * q.v[i];
}

// The leaves' pulls in the first round; they do not depend on what becomes of the endpoints. As late as can be: other
// teams may still be at these leaves.
__device__ void pull_leaves(const Stream& st, const Event& ev, Shared& sh) {
    const Star& star = sh.star;
    Pulls pulls = {zero(), zero()};
    await_leaves(st, star, st.plan.before_act);
    for (int j = star.leaf + leaf_worker(st); j < star.stop; j += LEAF_WORKERS) {
        Coef t;
        load_coef(coef_before(st, star, ev.e, j, 0), t);
        const Vec h = load(stalk_before(st, star, ev.e, j, 0));
        const Vec y = subtract(load_frame(st.tape, st.plan.act_F[j]), t, h);
        add_pull(pulls, st.plan.mult_src[j], st.plan.mult_dst[j], y);
    }
    keep_pulls(st, pulls, sh.collected[0]);
}

// One round of diffusion at the leaves, and their pulls in the next.
__device__ void move_leaves(const Stream& st, const Event& ev, Shared& sh, int round) {
    const Star& star = sh.star;
    const bool last = round == ROUNDS - 1;
    Pulls pulls = {zero(), zero()};
    const Vec gain = load(st.w.gain);
    for (int j = star.leaf + leaf_worker(st); j < star.stop; j += LEAF_WORKERS) {
        const real a = st.plan.mult_src[j], b = st.plan.mult_dst[j];
        const Frame f = load_frame(st.tape, st.plan.act_F[j]);
        Vec h = load(stalk_before(st, star, ev.e, j, round));
        Coef t;
        load_coef(coef_before(st, star, ev.e, j, round), t);
        const Vec r = scaled(a + b, minus(subtract(f, t, h), center(a, b, sh.y[round % 2])));
        const Vec q = lower(f, r, t);
        store_coef(t, t_round(st, j, round));
        step_along(step_size(st.eta, a + b), gain, q, h);
        coefficients(f, h, t);
        write_after(st, j, round, h, t);
        if (!last) add_pull(pulls, a, b, subtract(f, t, h));
    }
    if (!last) keep_pulls(st, pulls, sh.collected[(round + 1) % 2]);
}

// The same at the endpoints.
__device__ void diffuse_end(const Stream& st, const Event& ev, Shared& sh, int round, End& end) {
    const int s = ev.s, j = sh.star.first + s;
    const Vec r = combine(sh.star, s, sh.y[round % 2], sh.collected[ROUNDS > 1 ? round % 2 : 0], sh.gathered);
    store(r, st.tape.r_ends + at_end(st, ev.e, round, s));
    Coef t;
    const Vec q = lower(end.frame, r, t);
    store_coef(t, t_round(st, j, round));
    step_along(step_size(st.eta, sh.star.degree[s]), load(st.w.gain), q, end.h);
    coefficients(end.frame, end.h, t);
    write_after(st, j, round, end.h, t);
    end.y = subtract(end.frame, t, end.h);
    if (round < ROUNDS - 1) tell(end.y, sh.y[(round + 1) % 2] + s * D);
    store(end.y, st.tape.y_ends + at_end(st, ev.e, round + 1, s));
}

// Step 5 of alg:tsnn (alg:diffuse), once all pulls of the first round are collected.
__device__ void diffuse(const Stream& st, const Event& ev, Shared& sh, End& end) {
    const Star& star = sh.star;
    const bool acts = ev.is_end && !(ev.s && star.loop);
    for (int round = 0; round < ROUNDS; round++) {
        if (acts) diffuse_end(st, ev, sh, round, end);
        if (st.warp >= ENDS) move_leaves(st, ev, sh, round);
        if (round == ROUNDS - 1) return;
        meet();
        if (CLUSTER > 1) {
            gather(sh.collected[(round + 1) % 2], sh.gathered, 2 * D, WARPS - ENDS);
            meet();
        }
    }
    for (int j = star.first + worker(st); j < star.stop; j += WORKERS) {  // entries go on as they are
        Coef t;
        await(st, st.plan.before_act[j]);
        load_coef(coef_before(st, star, ev.e, j, 0), t);
        store(load(stalk_before(st, star, ev.e, j, 0)), st.tape.h + (long long)(st.z.n0 + j) * D);
        store_coef(t, st.tape.t_h + (long long)(st.z.n0 + j) * KR);
    }
}

// Of every event |h_u - Q_uv h_v|^2 after the last round, and how far the frames moved (eq:loss_aux); the energy of a
// self-loop is 0, and its two rows are one frame.
__device__ void measure(const Stream& st) {
    for (int e = stream_worker(st); e < st.z.n; e += stream_workers(st)) {
        const bool loop = st.plan.is_loop[e] != 0;
        const real* y = st.tape.y_ends + at_end(st, e, ROUNDS, 0);
        const Vec apart = minus(load(y), load(y + D));
        real moved = 0;
        for (int i = 0; i < (loop ? K : 2 * K) && FRAME_UPDATE; i++) {
            const Vec step = load(st.tape.dF + (2ll * e * K + i) * D);
            moved += partial(step, step);
        }
        const real energy = total(partial(apart, apart)), smooth = total(moved);
        if (lane() == 0) st.tape.energy[e] = loop ? real(0) : energy;
        if (lane() == 0) st.tape.smooth[e] = smooth;
    }
}

// Before and after `forward`: what is the same whoever does it.
extern "C" __global__ void BLOCKS __launch_bounds__(THREADS, 1)
    open_rows(const Plan plan, const Sizes z, const Weights weights, const Tape tapes) {
    open_initial(own_stream(plan, z, weights, tapes));
}

extern "C" __global__ void BLOCKS __launch_bounds__(THREADS, 1)
    measure_events(const Plan plan, const Sizes z, const Weights weights, const Tape tapes) {
    measure(own_stream(plan, z, weights, tapes));
}

extern "C" __global__ void BLOCKS __launch_bounds__(THREADS, 1)
    forward(const Plan plan, const Sizes z, const Weights weights, const Tape tapes) {
    Shared& sh = *reinterpret_cast<Shared*>(shared_memory());
    Stream st = own_stream(plan, z, weights, tapes);
    keep_weights<FORWARD>(st.w, sh.resident);
    keep_vectors(st.w, sh.vectors);
    if (CLUSTER > 1) meet();  // all are there
    Clock clock = {z.cycles};
    clock.lap(-1);
    for (int e = first_turn(st, &sh.turn); e < z.n; e = next_turn(st, e, &sh.turn)) {
        const Event ev = read_event(st, e);
        End end;
        read_ends(st, ev, sh, end);
        __syncthreads();
        clock.lap(0);
        if (FRAME_UPDATE) frame_step(st, ev, sh, end);
        clock.lap(1);
        if (ev.is_end) move_frame(st, ev, sh, end);
        carry_over(st, ev, sh, end);
        const int taken = take(st);
        clock.lap(2);
        update_stalks(st, ev, sh);
        clock.lap(3);
        if (ev.is_end) finish_stalk(st, ev, sh, end);
        if (ROUNDS > 0 && st.warp >= ENDS) pull_leaves(st, ev, sh);
        announce(st, taken, &sh.turn);
        meet();
        if (CLUSTER > 1 && ROUNDS > 0) {
            gather(sh.collected[0], sh.gathered, 2 * D, WARPS - ENDS);
            meet();
        }
        touch_plan<FORWARD>(st, taken);
        diffuse(st, ev, sh, end);
        meet();
        publish(st, e, ALL);
        clock.lap(4);
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Backward
// ---------------------------------------------------------------------------------------------------------------

// What was collected for one frame version (see frames.py): dN, and S in the upper triangle.
struct FrameGrad {
    Vec N[KF];
    real S[KF][KF];
};

__device__ FrameGrad load_grad(const Sizes& z, const Grads& g, int row) {
    FrameGrad a;
#pragma unroll
    for (int i = 0; i < KR; i++) {
        a.N[i] = row >= z.base ? load(g.gN + ((long long)row * KR + i) * D) : zero();
#pragma unroll
        for (int j = i + 1; j < KR; j++)
            a.S[i][j] = row >= z.base ? g.gS[((long long)row * KR + i) * KR + j] : real(0);
    }
    return a;
}

__device__ void store_grad(const Sizes& z, const Grads& g, int row, const FrameGrad& a) {
    if (row < z.base) return;
#pragma unroll
    for (int i = 0; i < KR; i++) {
        store(a.N[i], g.gN + ((long long)row * KR + i) * D);
#pragma unroll
        for (int j = i + 1; j < KR; j++)
            if (lane() == 0) g.gS[((long long)row * KR + i) * KR + j] = a.S[i][j];
    }
}

// The frame's share of z = U x: coefficients t, gradient dz, and s the coefficients of U^T dz. For z = U^T x exchange
// x and dz, t and s.
__device__ void collect(FrameGrad& a, const Vec& x, const Coef& t, const Vec& dz, const Coef& s) {
#pragma unroll
    for (int i = 0; i < KR; i++) {
        axpy(-t[i], dz, a.N[i]);
        axpy(-s[i], x, a.N[i]);
#pragma unroll
        for (int j = i + 1; j < KR; j++) a.S[i][j] += t[i] * s[j];
    }
}

// U^T dz for z = U x, and the frame's share.
__device__ Vec lift_adjoint(const Frame& f, FrameGrad& a, const Vec& x, const Coef& t, const Vec& dz) {
    Coef s;
    const Vec out = lower(f, dz, s);
    collect(a, x, t, dz, s);
    return out;
}

// U dz for z = U^T x, and the frame's share.
__device__ Vec lower_adjoint(const Frame& f, FrameGrad& a, const Vec& x, const Coef& t, const Vec& dz) {
    Coef s;
    const Vec out = lift(f, dz, s);
    collect(a, dz, s, x, t);
    return out;
}

// out[i] += gradient of reflector i's parameters.
__device__ void close_frame(const Tape& tape, const Frame& f, FrameGrad a, int row, Vec (&out)[K]) {
    FrameGrad b = a;
#pragma unroll
    for (int i = 0; i < KR; i++) {
#pragma unroll
        for (int j = 0; j < KR; j++)
            if (i != j) axpy(i < j ? a.S[i][j] : a.S[j][i], f.N[j], b.N[i]);
        const real along = total(partial(b.N[i], f.N[i])), scale = tape.inv[(long long)row * KR + i];
        axpy(scale, b.N[i], out[i]);
        axpy(-scale * along, f.N[i], out[i]);
    }
}

struct SharedBack {
    alignas(16) real gr[2 * D], gx[4 * D], hbar[2 * D], state[2 * D], m[2 * D], cross[2 * D];
    alignas(16) real hid[2 * W], wide[2 * WIDE], part[2 * THREADS], collected[WARPS * 2 * D];
    alignas(16) real gathered[CLUSTER > 1 ? CLUSTER * 2 * D : 4];
    real hid_frame[2 * W], hid_msg[2 * W], gates[8 * D], x_msg[4 * D];
    real r_ends[2 * D * ROUNDS + 1], y_ends[2 * D * ROUNDS + 1];
    Vectors vectors;
    Star star;
    int turn;
    alignas(16) real resident[1];
};
static_assert(sizeof(SharedBack) + sizeof(real) * resident_numbers(BACKWARD) <= SHARED_BYTES, "too little shared memory");

// What a warp carries back through an event, if it is an endpoint.
struct Back {
    Frame frame;          // of the version after the event, then of the one before
    FrameGrad share;      // what is collected for it
    Vec gh, gy, g_pre;    // gradients: the stalk, its synchronized coordinates before the event, the stalk before it
    Vec written, apart;   // the stalk that the event wrote, and y_u - y_v
    Coef t;               // of `written`
    bool acts;            // of a self-loop only the first row does
};

__device__ void add_to(real* place, Vec x) {
    axpy(real(1), load(place), x);
    store(x, place);
}

// All that the first steps read, at once; meanwhile the star, and what will be needed.
__device__ void read_after(const Stream& st, const Grads& g, const Event& ev, SharedBack& sh, Back& back) {
    const Tape& tape = st.tape;
    const int e = ev.e;
    back.acts = ev.is_end && !(ev.s && st.plan.is_loop[e]);
    back.gh = back.gy = back.g_pre = zero();
    if (ev.is_end) {
        const long long row = st.z.n0 + st.plan.act_ptr[e] + (back.acts ? ev.s : 0);
        const real* y = tape.y_ends + at_end(st, e, ROUNDS, 0);
        await(st, (ev.s ? st.plan.after_dst : st.plan.after_src)[e]);
        back.frame = load_frame(tape, ev.post_row);
        back.share = load_grad(st.z, g, ev.post_row);
        back.written = load(tape.h + row * D);
        load_coef(tape.t_h + row * KR, back.t);
        back.apart = minus(load(y), load(y + D));
        if (back.acts) back.gh = load(g.gh + row * D);
    } else if (ev.s == 2) {
        read_star(st.plan, e, sh.star);
    } else if (ev.s > 2) {
        prefetch_leaves(st, e);
        if (FRAME_UPDATE) bring(tape.hid_frame + ev.ends * W, sh.hid_frame, 2 * W);
        bring(tape.hid_msg + ev.ends * W, sh.hid_msg, 2 * W);
        bring(tape.gates + ev.ends * 4 * D, sh.gates, 8 * D);
        bring(tape.x_msg + ev.ends * 2 * D, sh.x_msg, 4 * D);
        for (int round = 0; round < ROUNDS; round++) {
            bring(tape.r_ends + at_end(st, e, round, 0), sh.r_ends + round * 2 * D, 2 * D);
            bring(tape.y_ends + at_end(st, e, round, 0), sh.y_ends + round * 2 * D, 2 * D);
        }
    }
}

// Adjoints of `step_along`: the gradient of q, and gD.
__device__ Vec step_adjoint(real c, const Vec& gain, const Vec& gh) {
    Vec gq;
#pragma unroll
    for (int i = 0; i < E; i++) gq.v[i] = -c * gain.v[i] * gh.v[i];
    return gq;
}

__device__ void gain_adjoint(real c, const Vec& q, const Vec& gh, Vec& gD) {
#pragma unroll
    for (int i = 0; i < E; i++) gD.v[i] -= c * gh.v[i] * q.v[i];
}

// A leaf in one round, and the gradient of its own r.
struct Leaf {
    Frame frame;
    Vec h, r, q, gh, gq, gr;
    Coef t_h, t_r, t_q;
    real a, b;
};

__device__ Leaf leaf_before(const Stream& st, const Grads& g, const Event& ev, const SharedBack& sh, int round, int j) {
    Leaf leaf;
    leaf.a = st.plan.mult_src[j], leaf.b = st.plan.mult_dst[j];
    leaf.frame = load_frame(st.tape, st.plan.act_F[j]);
    leaf.h = load(stalk_before(st, sh.star, ev.e, j, round));
    leaf.gh = load(g.gh + (long long)(st.z.n0 + j) * D);
    load_coef(coef_before(st, sh.star, ev.e, j, round), leaf.t_h);
    load_coef(t_round(st, j, round), leaf.t_r);
    const Vec y = subtract(leaf.frame, leaf.t_h, leaf.h);
    leaf.r = scaled(leaf.a + leaf.b, minus(y, center(leaf.a, leaf.b, sh.y_ends + round * 2 * D)));
    leaf.q = subtract(leaf.frame, leaf.t_r, leaf.r);
    leaf.gq = step_adjoint(step_size(st.eta, leaf.a + leaf.b), load(st.w.gain), leaf.gh);
    leaf.gr = lift(leaf.frame, leaf.gq, leaf.t_q);
    return leaf;
}

// One round backward at the leaves: their pulls first, which do not depend on the endpoints,
__device__ void pulls_adjoint(const Stream& st, const Grads& g, const Event& ev, SharedBack& sh, int round) {
    Pulls pulls = {zero(), zero()};
    for (int j = sh.star.leaf + leaf_worker(st); j < sh.star.stop; j += LEAF_WORKERS) {
        const Leaf leaf = leaf_before(st, g, ev, sh, round, j);
        add_pull(pulls, leaf.a, leaf.b, leaf.gr);
    }
    keep_pulls(st, pulls, sh.collected);
}

// and then the rest.
__device__ void leaves_adjoint(const Stream& st, const Grads& g, const Event& ev, SharedBack& sh, int round, Vec& gD) {
    for (int j = sh.star.leaf + leaf_worker(st); j < sh.star.stop; j += LEAF_WORKERS) {
        Leaf leaf = leaf_before(st, g, ev, sh, round, j);
        const int row_F = st.plan.act_F[j], row_h = st.plan.act_h[j];
        FrameGrad share = load_grad(st.z, g, row_F);
        gain_adjoint(step_size(st.eta, leaf.a + leaf.b), leaf.q, leaf.gh, gD);
        collect(share, leaf.gq, leaf.t_q, leaf.r, leaf.t_r);
        const Vec gy = scaled(leaf.a + leaf.b, minus(leaf.gr, center(leaf.a, leaf.b, sh.gr)));
        Coef s;
        axpy(real(1), lower(leaf.frame, gy, s), leaf.gh);
        collect(share, leaf.h, leaf.t_h, gy, s);
        store_grad(st.z, g, row_F, share);
        if (round > 0)
            store(leaf.gh, g.gh + (long long)(st.z.n0 + j) * D);
        else if (row_h >= st.z.base)
            add_to(g.gh + (long long)row_h * D, leaf.gh);
    }
}

// Gradient of an endpoint's r in one round, into everybody's sh.gr.
__device__ void end_adjoint(const Stream& st, const Event& ev, SharedBack& sh, int round, Back& back, Vec& gD) {
    const Vec r = load(sh.r_ends + (2 * round + ev.s) * D);
    Coef t_r, t_q;
    load_coef(t_round(st, sh.star.first + ev.s, round), t_r);
    const real c = step_size(st.eta, sh.star.degree[ev.s]);
    gain_adjoint(c, subtract(back.frame, t_r, r), back.gh, gD);
    const Vec gq = step_adjoint(c, load(st.w.gain), back.gh);
    tell(lift(back.frame, gq, t_q), sh.gr + ev.s * D);
    collect(back.share, gq, t_q, r, t_r);
}

// Step 5 backward; back.gh becomes the gradient of the GRU's output.
__device__ void diffusion_adjoint(const Stream& st, const Grads& g, const Event& ev, SharedBack& sh, Back& back,
                                  Vec& gD) {
    const Star& star = sh.star;
    if (back.acts && !star.loop) {  // the energy's pull on the last round's output
        const Vec pull = scaled((ev.s ? real(-2) : real(2)) * g.up_energy[ev.e], back.apart);
        axpy(real(1), lift_adjoint(back.frame, back.share, back.written, back.t, pull), back.gh);
    }
    if (ROUNDS > 0 && st.warp >= ENDS) await_leaves(st, star, st.plan.after_act);
    for (int round = ROUNDS - 1; round >= 0; round--) {
        if (back.acts) end_adjoint(st, ev, sh, round, back, gD);
        if (st.warp >= ENDS) {
            pulls_adjoint(st, g, ev, sh, round);
            back = Back();  // no warp of leaves has any: to say so leaves its registers to them
        }
        if (CLUSTER > 1) {
            __syncthreads();
            gather(sh.collected, sh.gathered, 2 * D, WARPS - ENDS);
        }
        meet();
        if (back.acts) {
            Coef t;
            const int j = star.first + ev.s;
            load_coef(coef_before(st, star, ev.e, j, round), t);
            const Vec before = load(stalk_before(st, star, ev.e, j, round));
            const Vec sum = combine(star, ev.s, sh.gr, sh.collected, sh.gathered);
            axpy(real(1), lift_adjoint(back.frame, back.share, before, t, sum), back.gh);
        }
        if (st.warp >= ENDS) {
            leaves_adjoint(st, g, ev, sh, round, gD);
            back = Back();
        }
        if (round > 0) meet();
    }
    if (ROUNDS > 0) return;
    for (int j = star.leaf + worker(st); j < star.stop; j += WORKERS) {
        await(st, st.plan.after_act[j]);
        if (st.plan.act_h[j] >= st.z.base)
            add_to(g.gh + (long long)st.plan.act_h[j] * D, load(g.gh + (long long)(st.z.n0 + j) * D));
    }
}

// From the gradient of an endpoint's new stalk to those of the GRU's layers, in everybody's sh.wide.
__device__ void gates_adjoint(const Grads& g, const Event& ev, SharedBack& sh, const Vec& gh) {
    const real *gates = sh.gates + ev.s * 4 * D, *carried = sh.x_msg + ev.s * 2 * D;
#pragma unroll
    for (int i = 0; i < E; i++) {
        const int c = lane() + 32 * i;
        if (c >= D) continue;
        const real reset = gates[c], update = gates[D + c], candidate = gates[2 * D + c], state = gates[3 * D + c];
        const real up = gh.v[i], v = up * (real(1) - update) * (real(1) - candidate * candidate);
        const real out[4] = {v * reset, v * state * reset * (real(1) - reset),
                             up * (carried[c] - candidate) * update * (real(1) - update), v};
#pragma unroll
        for (int gate = 0; gate < 4; gate++) {
            g.d_gates[((ev.ends + ev.s) * 4 + gate) * D + c] = out[gate];
            tell(sh.wide + ev.s * WIDE + gate * D + c, out[gate]);
        }
        tell(sh.hbar + ev.s * D + c, up * update);
    }
}

// Step 4 backward: sh.gx, the gradients of the inputs of the message. The leaves are done with.
__device__ void stalks_adjoint(const Stream& st, const Grads& g, const Event& ev, SharedBack& sh, const Back& back,
                               const Vec& gD) {
    if (ev.is_end) gates_adjoint(g, ev, sh, back.gh);
    meet();
    publish(st, ev.e, LEAVES);
    store(gD, sh.collected + st.warp * D);
    layer<BACKWARD, GRU_BOTH>(st.w, sh.resident, sh.wide + D, sh.wide, WIDE, sh.part, [&](int row, int c, real sum) {
        if (c < D) g.d_msg_out[(ev.ends + row) * D + c] = sum;
        tell(c < D ? sh.m + row * D + c : sh.state + row * D + c - D, sum);
    });
    layer<BACKWARD, MSG_OUT>(st.w, sh.resident, sh.m, sh.m, D, sh.part, [&](int row, int c, real sum) {
        sum = sh.hid_msg[row * W + c] > real(0) ? sum : real(0);
        g.d_msg_hid[(ev.ends + row) * W + c] = sum;
        tell(sh.hid + row * W + c, sum);
    });
    layer<BACKWARD, MSG_IN>(st.w, sh.resident, sh.hid, sh.hid, W, sh.part, [&](int row, int c, real sum) {
        if (c < D) sum += sh.hbar[row * D + c] + sh.state[row * D + c];
        tell_first(sh.gx + row * 2 * D + c, sum);
    });
}

// Adjoint of `write_inputs`: the partner's share goes to sh.cross, the endpoint's own is returned.
__device__ Vec inputs_adjoint(const Stream& st, const Event& ev, SharedBack& sh, Back& back, int slot, const real* y) {
    Vec own = load(sh.gx + ev.s * 2 * D);
    const Vec partner = load(sh.gx + ev.s * 2 * D + D);
    if (sh.star.loop) {
        axpy(real(1), partner, own);
    } else {
        Coef t;
        load_coef(coef_of(st, ev, slot), t);
        const Vec other = load(y + (ev.ends + 1 - ev.s) * D);
        store(lower_adjoint(back.frame, back.share, other, t, partner), sh.cross + (1 - ev.s) * D);
    }
    return own;
}

// Adjoint of `carry_over`.
__device__ void carry_adjoint(const Stream& st, const Event& ev, SharedBack& sh, Back& back) {
    const Tape& tape = st.tape;
    Coef t;
    if (back.acts) {
        back.g_pre = inputs_adjoint(st, ev, sh, back, POST, CARRY_OVER ? tape.y_pre : tape.y_moved);
        if (CARRY_OVER) {
            load_coef(coef_of(st, ev, CARRY), t);
            const Vec y = load(tape.y_pre + (ev.ends + ev.s) * D);
            back.gy = lower_adjoint(back.frame, back.share, y, t, back.g_pre);
            back.g_pre = zero();
        }
    }
    __syncthreads();
    if (!back.acts || sh.star.loop) return;
    const Vec cross = load(sh.cross + ev.s * D);
    if (CARRY_OVER) {
        axpy(real(1), cross, back.gy);
    } else {
        load_coef(coef_of(st, ev, MOVED), t);
        const Vec x = load(sh.x_msg + ev.s * 2 * D);
        axpy(real(1), lift_adjoint(back.frame, back.share, x, t, cross), back.g_pre);
    }
}

// Adjoint of `keep_length`: a gradient without its part along the row, scaled as the row was.
__device__ void keep_length_adjoint(const Stream& st, const Event& ev, Vec (&g)[K]) {
#pragma unroll
    for (int i = 0; i < K; i++) {
        const Vec row = load(st.tape.F + ((long long)ev.post_row * K + i) * D);
        const real length2 = total(partial(row, row)), along = total(partial(row, g[i]));
        if (length2 > real(st.z.eps * st.z.eps)) axpy(-along / length2, row, g[i]);
        g[i] = scaled(st.tape.stretch[(ev.ends + ev.s) * K + i], g[i]);
    }
}

// Step 3 backward. The frames after the event are complete: their gradient goes to the versions before it and, through
// MLP_frame, to sh.gx.
__device__ void frames_adjoint(const Stream& st, const Grads& g, const Event& ev, SharedBack& sh, const Back& back) {
    const bool loop = sh.star.loop;
    Vec step[K];
    if (ev.is_end) {
#pragma unroll
        for (int i = 0; i < K; i++) step[i] = load(g.gF + ((long long)ev.post_row * K + i) * D);
        close_frame(st.tape, back.frame, back.share, ev.post_row, step);
        if (loop && ev.s == 1)
#pragma unroll
            for (int i = 0; i < K; i++) {  // both rows of a self-loop are one frame
                store(step[i], sh.wide + i * D);
                step[i] = zero();
            }
    }
    __syncthreads();
    if (ev.is_end) {
#pragma unroll
        for (int i = 0; i < K; i++)
            if (loop && ev.s == 0) axpy(real(1), load(sh.wide + i * D), step[i]);
        if (FRAME_UPDATE && KEPT) keep_length_adjoint(st, ev, step);
#pragma unroll
        for (int i = 0; i < K; i++) {
            if (back.acts && ev.row_F >= st.z.base) add_to(g.gF + ((long long)ev.row_F * K + i) * D, step[i]);
            if (FRAME_UPDATE && back.acts)
                axpy(real(2) * g.up_smooth[ev.e], load(st.tape.dF + (ev.ends + ev.s) * KD + i * D), step[i]);
            store(step[i], g.d_frame_out + (ev.ends + ev.s) * KD + i * D);
            tell(step[i], sh.wide + ev.s * WIDE + i * D);
        }
    }
    meet();
    if (!FRAME_UPDATE) return;
    layer<BACKWARD, FRAME_OUT>(st.w, sh.resident, sh.wide, sh.wide, WIDE, sh.part, [&](int row, int c, real sum) {
        sum = sh.hid_frame[row * W + c] > real(0) ? sum : real(0);
        g.d_frame_hid[(ev.ends + row) * W + c] = sum;
        tell(sh.hid + row * W + c, sum);
    });
    layer<BACKWARD, FRAME_IN>(st.w, sh.resident, sh.hid, sh.hid, W, sh.part,
                              [&](int row, int c, real sum) { tell_first(sh.gx + row * 2 * D + c, sum); });
}

// Adjoint of the reads: the endpoints' gradients go to the versions they came from.
__device__ void reads_adjoint(const Stream& st, const Grads& g, const Event& ev, SharedBack& sh, Back& back) {
    if (back.acts) {
        back.frame = load_frame(st.tape, ev.row_F);
        back.share = load_grad(st.z, g, ev.row_F);
        if (FRAME_UPDATE) axpy(real(1), inputs_adjoint(st, ev, sh, back, PRE, st.tape.y_pre), back.g_pre);
    }
    __syncthreads();
    if (!back.acts) return;
    if (FRAME_UPDATE && !sh.star.loop) axpy(real(1), load(sh.cross + ev.s * D), back.gy);
    Coef t;
    load_coef(st.tape.t_h + (long long)ev.row_h * KR, t);
    const Vec h = load(st.tape.h + (long long)ev.row_h * D);
    axpy(real(1), lift_adjoint(back.frame, back.share, h, t, back.gy), back.g_pre);
    store_grad(st.z, g, ev.row_F, back.share);
    if (ev.row_h >= st.z.base) add_to(g.gh + (long long)ev.row_h * D, back.g_pre);
}

// The event's share of gD, from the warps in their order; while the endpoints are busy.
__device__ void sum_gain(const Stream& st, const Grads& g, const Event& ev, const SharedBack& sh) {
    if (st.warp < ENDS) return;
    for (int c = threadIdx.x - 32 * ENDS; c < D; c += THREADS - 32 * ENDS) {
        real sum = 0;
        for (int i = 0; i < WARPS; i++) sum += sh.collected[i * D + c];
        g.gD[((long long)ev.e * CLUSTER + rank()) * D + c] = sum;
    }
}

// Gradients of the frames that the chunk begins with.
__device__ void close_initial(const Stream& st, const Grads& g) {
    for (int row = stream_worker(st); row < st.z.n0; row += stream_workers(st)) {
        Vec out[K];
#pragma unroll
        for (int i = 0; i < K; i++) out[i] = load(g.gF + ((long long)row * K + i) * D);
        close_frame(st.tape, load_frame(st.tape, row), load_grad(st.z, g, row), row, out);
#pragma unroll
        for (int i = 0; i < K; i++) store(out[i], g.gF + ((long long)row * K + i) * D);
    }
}

extern "C" __global__ void BLOCKS __launch_bounds__(THREADS, 1)
    backward(const Plan plan, const Sizes z, const Weights weights, const Tape tapes, const Grads grads) {
    SharedBack& sh = *reinterpret_cast<SharedBack*>(shared_memory());
    Stream st = own_stream(plan, z, weights, tapes);
    const Grads g = own(z, grads, z.grads);
    keep_weights<BACKWARD>(st.w, sh.resident);
    keep_vectors(st.w, sh.vectors);
    if (CLUSTER > 1) meet();  // all are there
    Clock clock = {z.cycles};
    clock.lap(-1);
    for (int turn = first_turn(st, &sh.turn); turn < z.n; turn = next_turn(st, turn, &sh.turn)) {
        const Event ev = read_event(st, z.n - 1 - turn);
        Back back;
        Vec gD = zero();
        read_after(st, g, ev, sh, back);
        __syncthreads();
        clock.lap(0);
        diffusion_adjoint(st, g, ev, sh, back, gD);
        clock.lap(4);
        stalks_adjoint(st, g, ev, sh, back, gD);
        const int taken = take(st);
        clock.lap(3);
        sum_gain(st, g, ev, sh);
        carry_adjoint(st, ev, sh, back);
        clock.lap(2);
        frames_adjoint(st, g, ev, sh, back);
        clock.lap(1);
        announce(st, taken, &sh.turn);
        touch_plan<BACKWARD>(st, taken);
        reads_adjoint(st, g, ev, sh, back);
        meet();
        publish(st, ev.e, ALL);
        clock.lap(0);
    }
}

// After `backward`, where the gradients of the chunk's first rows are asked for.
extern "C" __global__ void BLOCKS __launch_bounds__(THREADS, 1)
    close_rows(const Plan plan, const Sizes z, const Weights weights, const Tape tapes, const Grads grads) {
    close_initial(own_stream(plan, z, weights, tapes), own(z, grads, z.grads));
}

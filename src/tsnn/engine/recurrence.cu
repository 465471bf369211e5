// The recurrence of a chunk on a GPU, forward and backward: one thread block a stream, event after event.
//
// The notation, the version logs and the adjoints are those of tsnn/engine/kernels.py. Two warps hold the endpoints,
// source and destination; every warp takes leaves of the active graph in turn; the whole block shares the layers of the
// networks, two rows at a time. A warp keeps a vector of D numbers in its lanes. All sums have a fixed order.
//
// The including text defines REAL, D, K, KR (reflectors applied: K, or 0 without transport), W, ROUNDS, FRAME_UPDATE,
// CARRY_OVER, THREADS, SHARED_BYTES, VEC (numbers that a thread loads at once) and RESIDENT: the layers whose weights
// stay in shared memory, one bit each in the order of Layer. The rest comes from the second-level cache at every event.

typedef REAL real;

constexpr int E = (D + 31) / 32;  // numbers of a vector in each lane
constexpr int KD = K * D, KF = KR > 0 ? KR : 1, WARPS = THREADS / 32;
constexpr int WIDE = KD > 4 * D ? KD : 4 * D;
enum { PRE, CARRY, POST, LIFT, GRU, NUM_COEF };  // slots of Tape.coef

struct Plan {
    const int *src_h, *dst_h, *src_F, *dst_F, *act_ptr, *act_h, *act_F, *is_loop;
    const float *mult_src, *mult_dst;
};

struct Sizes {
    long long tape, weights, grads;  // numbers from one stream's arrays to the next one's
    const double* eta;               // one a stream
    double eps;
    int n, n0, num_active, base;  // rows below `base` are constants: no gradient is kept for them
};

enum Layer { FRAME_IN, FRAME_OUT, MSG_IN, MSG_OUT, GRU_BOTH, NUM_LAYERS };
constexpr int SIZES[NUM_LAYERS] = {2 * D * W, W * KD, 2 * D * W, W * D, 6 * D * D};

// Matrices as VEC inputs of one output after the other, see `layer`; of the GRU both, the message's first.
struct Weights {
    real* matrix[NUM_LAYERS];
    real *frame_bias, *msg_bias, *gru_bias, *gain;
};

struct Tape {
    real *h, *F, *N, *G, *inv, *t_h, *x_frame, *hid_frame, *dF, *x_msg, *hid_msg, *m, *gates, *gru_h, *y_pre, *y_ends,
        *coef, *lift, *t_round, *r_ends, *mid_h, *mid_t, *energy, *smooth;
};

struct Grads {
    real *up_energy, *up_smooth, *gh, *gF, *gN, *gS, *d_frame_hid, *d_frame_out, *d_msg_hid, *d_msg_out, *d_gates, *gD;
};

// The arrays of this block's stream.
template <class Pointers>
__device__ Pointers own(Pointers all, long long stride) {
    real** field = reinterpret_cast<real**>(&all);
#pragma unroll
    for (int i = 0; i < int(sizeof(Pointers) / sizeof(real*)); i++) field[i] += blockIdx.x * stride;
    return all;
}

// ---------------------------------------------------------------------------------------------------------------
// Vectors of a warp
// ---------------------------------------------------------------------------------------------------------------

struct Vec {
    real v[E];
};

__device__ int lane() { return threadIdx.x & 31; }
__device__ int warp() { return threadIdx.x >> 5; }

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

// done(row, column, sum_j x[row][j] M[j][column]) for two rows of x; columns from SECOND on read `x2` instead. Ends
// with all results handed over and the block in step.
template <int L, int IN, int OUT, int SECOND = OUT, class Done>
__device__ void layer(const Weights& w, const real* resident, const real* x, const real* x2, int ldx, real* part,
                      Done done) {
    constexpr int COLS = best_columns(IN, OUT), PARTS = THREADS / COLS, STEP = ceil_div(IN / VEC, PARTS);
    constexpr bool HERE = (RESIDENT >> L) & 1, EXACT = STEP * PARTS * VEC == IN;
    int offset = 0;
#pragma unroll
    for (int i = 0; i < L; i++) offset += (RESIDENT >> i) & 1 ? SIZES[i] : 0;
    const real* M = HERE ? resident + offset : w.matrix[L];
    const int c = threadIdx.x % COLS, p = threadIdx.x / COLS;
#pragma unroll
    for (int first = 0; first < OUT; first += COLS) {
        const int column = first + c;
        if (p >= PARTS || column >= OUT) continue;
        const real* from = (column < SECOND ? x : x2) + p * STEP * VEC;
        const real* weights = M + (p * STEP * OUT + column) * VEC;
        real s0 = 0, s1 = 0;
#pragma unroll 8
        for (int j = 0; j < STEP; j++) {
            if (EXACT || (p * STEP + j) * VEC < IN) {
                const Pack m = fetch<HERE>(weights + j * OUT * VEC);
                const Pack a = fetch<true>(from + j * VEC), b = fetch<true>(from + ldx + j * VEC);
#pragma unroll
                for (int i = 0; i < VEC; i++) s0 += m.v[i] * a.v[i], s1 += m.v[i] * b.v[i];
            }
        }
        if constexpr (PARTS == 1) {
            done(0, column, s0);
            done(1, column, s1);
        } else {
            part[p * 2 * OUT + column] = s0;
            part[p * 2 * OUT + OUT + column] = s1;
        }
    }
    __syncthreads();
    if constexpr (PARTS > 1) {
        for (int i = threadIdx.x; i < 2 * OUT; i += THREADS) {
            real sum = 0;
#pragma unroll
            for (int q = 0; q < PARTS; q++) sum += part[q * 2 * OUT + i];
            done(i / OUT, i % OUT, sum);
        }
        __syncthreads();
    }
}

// Copies the resident layers; the caller brings the block in step.
__device__ void keep_weights(const Weights& w, real* resident) {
#pragma unroll
    for (int l = 0; l < NUM_LAYERS; l++) {
        if (!((RESIDENT >> l) & 1)) continue;
        for (int i = threadIdx.x; i < SIZES[l]; i += THREADS) resident[i] = w.matrix[l][i];
        resident += SIZES[l];
    }
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
__device__ const real* stalk_before(const Plan& plan, const Sizes& z, const Tape& t, const Star& star, int e, int j,
                                    int round) {
    if (round > 0) return t.mid_h + ((long long)(round - 1) * z.num_active + j) * D;
    if (j < star.leaf) return t.gru_h + (2ll * e + j - star.first) * D;
    return t.h + (long long)plan.act_h[j] * D;
}

__device__ const real* coef_before(const Plan& plan, const Sizes& z, const Tape& t, const Star& star, int e, int j,
                                   int round) {
    if (round > 0) return t.mid_t + ((long long)(round - 1) * z.num_active + j) * KR;
    if (j < star.leaf) return t.coef + ((2ll * e + j - star.first) * NUM_COEF + GRU) * KR;
    return t.t_h + (long long)plan.act_h[j] * KR;
}

__device__ void write_after(const Sizes& z, const Tape& t, int j, int round, const Vec& h, const Coef& coef) {
    const bool last = round == ROUNDS - 1;
    const long long row = last ? z.n0 + j : (long long)round * z.num_active + j;
    store(h, (last ? t.h : t.mid_h) + row * D);
    store_coef(coef, (last ? t.t_h : t.mid_t) + row * KR);
}

// Ask for `count` numbers, a cache line a lane.
__device__ void prefetch(const real* p, int count) {
    for (int i = lane() * (128 / int(sizeof(real))); i < count; i += 32 * (128 / int(sizeof(real))))
#ifdef __CUDA_ARCH__
        asm volatile("prefetch.global.L1 [%0];" ::"l"(p + i));
#else
        ;
#endif
}

// While two warps are busy with the endpoints and a third with the star, the others ask for what the leaves will need,
// and `bring` what waits in the tape.
__device__ void prefetch_leaves(const Plan& plan, const Tape& tape, int e) {
    const int stop = plan.act_ptr[e + 1], first = plan.act_ptr[e] + (plan.is_loop[e] ? 1 : 2);
    for (int j = first + warp() - 3; j < stop; j += WARPS - 3) {
        const long long row_F = plan.act_F[j], row_h = plan.act_h[j];
        prefetch(tape.N + row_F * KR * D, KR * D);
        prefetch(tape.h + row_h * D, D);
        prefetch(tape.G + row_F * KR * KR, KR * KR);
        prefetch(tape.t_h + row_h * KR, KR);
    }
}

__device__ void bring(const real* from, real* to, int count) {
    for (int i = threadIdx.x - 96; i < count; i += THREADS - 96) to[i] = from[i];
}

// out[s] = total[s] ends[s] - uv ends[1 - s] + what the warps collected, in the order of the warps.
__device__ void combine(const Star& star, const real* ends, const real* collected, real* out) {
    for (int i = threadIdx.x; i < 2 * D; i += THREADS) {
        const int s = i / D, c = i % D;
        const real other = star.loop ? ends[c] : ends[(1 - s) * D + c];
        real sum = star.total[s] * ends[star.loop ? c : i] - star.uv * other;
        for (int w = 0; w < WARPS; w++) sum += collected[w * 2 * D + i];
        out[i] = sum;
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Forward
// ---------------------------------------------------------------------------------------------------------------

struct Shared {
    alignas(16) real x[4 * D], y[2 * D], h[2 * D], r[2 * D], hid[2 * W], wide[2 * 6 * D + 2 * KD];
    real share_frame[2 * W], share_msg[2 * W];
    alignas(16) real part[2 * THREADS], collected[WARPS * 2 * D];
    Star star;
    alignas(16) real resident[1];
};

extern __shared__ char memory[];

__device__ constexpr int resident_numbers() {
    int sum = 0;
    for (int l = 0; l < NUM_LAYERS; l++) sum += (RESIDENT >> l) & 1 ? SIZES[l] : 0;
    return sum;
}

static_assert(sizeof(Shared) + sizeof(real) * resident_numbers() <= SHARED_BYTES, "too little shared memory");

// One round of diffusion at the leaves: each is moved, and its pull on the endpoints collected.
__device__ void diffuse_leaves(const Plan& plan, const Sizes& z, const Weights& w, const Tape& tape, const Star& star,
                               Shared& sh, real eta, int e, int round) {
    Vec pull_u = zero(), pull_v = zero(), gain = load(w.gain);
    for (int j = star.leaf + warp(); j < star.stop; j += WARPS) {
        const real a = plan.mult_src[j], b = plan.mult_dst[j];
        const Frame f = load_frame(tape, plan.act_F[j]);
        const Vec h = load(stalk_before(plan, z, tape, star, e, j, round));
        Coef t;
        load_coef(coef_before(plan, z, tape, star, e, j, round), t);
        const Vec y = subtract(f, t, h);
        axpy(-a, y, pull_u);
        axpy(-b, y, pull_v);
        const Vec r = scaled(a + b, minus(y, center(a, b, sh.y)));
        const Vec q = lower(f, r, t);
        store_coef(t, tape.t_round + ((long long)round * z.num_active + j) * KR);
        Vec post = h;
        const real c = step_size(eta, a + b);
#pragma unroll
        for (int i = 0; i < E; i++) post.v[i] -= c * gain.v[i] * q.v[i];
        coefficients(f, post, t);
        write_after(z, tape, j, round, post, t);
    }
    store(pull_u, sh.collected + warp() * 2 * D);
    store(pull_v, sh.collected + warp() * 2 * D + D);
}

// The same at the endpoints, once the leaves' pulls are in sh.r; h is the warp's own endpoint.
__device__ void diffuse_end(const Sizes& z, const Weights& w, const Tape& tape, const Star& star, Shared& sh,
                            const Frame& post, real eta, int e, int round, Vec& h) {
    const int s = warp(), j = star.first + s;
    const Vec r = load(sh.r + s * D), gain = load(w.gain);
    store(r, tape.r_ends + (2ll * ((long long)round * z.n + e) + s) * D);
    Coef t;
    const Vec q = lower(post, r, t);
    store_coef(t, tape.t_round + ((long long)round * z.num_active + j) * KR);
    const real c = step_size(eta, star.degree[s]);
#pragma unroll
    for (int i = 0; i < E; i++) h.v[i] -= c * gain.v[i] * q.v[i];
    coefficients(post, h, t);
    write_after(z, tape, j, round, h, t);
    const Vec y = subtract(post, t, h);
    store(y, sh.y + s * D);
    store(y, tape.y_ends + (2ll * ((long long)(round + 1) * z.n + e) + s) * D);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    forward(const Plan plan, const Sizes z, const Weights all_weights, const Tape all_tapes) {
    Shared& sh = *reinterpret_cast<Shared*>(memory);
    const Tape tape = own(all_tapes, z.tape);
    const Weights w = own(all_weights, z.weights);
    const real eta = real(z.eta[blockIdx.x]);
    const int s = warp();  // of the endpoints' two warps: 0 the source, 1 the destination
    const bool is_end = s < 2;
    keep_weights(w, sh.resident);
    for (int row = warp(); row < z.n0; row += WARPS) {
        Vec F[K];
#pragma unroll
        for (int i = 0; i < K; i++) F[i] = load(tape.F + ((long long)row * K + i) * D);
        const Frame f = open_frame(tape, row, F, z.eps);
        Coef t;
        coefficients(f, load(tape.h + (long long)row * D), t);
        store_coef(t, tape.t_h + (long long)row * KR);
    }
    __syncthreads();
    for (int e = 0; e < z.n; e++) {
        const long long ends = 2ll * e;
        const int row_h = s ? plan.dst_h[e] : plan.src_h[e], row_F = s ? plan.dst_F[e] : plan.src_F[e];
        const int post_row = z.n0 + 2 * e + s;
        Frame frame;
        Vec h, y, F[K];
        Coef t;
        if (is_end) {  // the endpoint in synchronized coordinates
            frame = load_frame(tape, row_F);
            h = load(tape.h + (long long)row_h * D);
            load_coef(tape.t_h + (long long)row_h * KR, t);
#pragma unroll
            for (int i = 0; i < K; i++) F[i] = load(tape.F + ((long long)row_F * K + i) * D);
            y = subtract(frame, t, h);
            store(y, sh.y + s * D);
            store(y, tape.y_pre + (ends + s) * D);
        } else if (s == 2) {
            read_star(plan, e, sh.star);
        } else {
            if (FRAME_UPDATE) bring(tape.hid_frame + ends * W, sh.share_frame, 2 * W);
            bring(tape.hid_msg + ends * W, sh.share_msg, 2 * W);
            prefetch_leaves(plan, tape, e);
        }
        __syncthreads();
        const Star& star = sh.star;
        if (FRAME_UPDATE) {
            if (is_end) {  // its partner in its own coordinates
                Vec partner = h;
                if (!star.loop) {
                    partner = lower(frame, load(sh.y + (1 - s) * D), t);
                    store_coef(t, tape.coef + ((ends + s) * NUM_COEF + PRE) * KR);
                }
                store(h, sh.x + s * 2 * D);
                store(partner, sh.x + s * 2 * D + D);
                store(h, tape.x_frame + (ends + s) * 2 * D);
                store(partner, tape.x_frame + (ends + s) * 2 * D + D);
            }
            __syncthreads();
            layer<FRAME_IN, 2 * D, W>(w, sh.resident, sh.x, sh.x, 2 * D, sh.part, [&](int row, int c, real sum) {
                const real hid = relu(sh.share_frame[row * W + c] + sum);
                tape.hid_frame[(ends + row) * W + c] = sh.hid[row * W + c] = hid;
            });
            layer<FRAME_OUT, W, KD>(w, sh.resident, sh.hid, sh.hid, W, sh.part, [&](int row, int c, real sum) {
                tape.dF[(ends + row) * KD + c] = sh.wide[row * KD + c] = sum + w.frame_bias[c];
            });
        }
        if (is_end) {  // the new frame
            real smooth = 0;
#pragma unroll
            for (int i = 0; i < K; i++) {
                if (FRAME_UPDATE) {
                    const Vec step = load(sh.wide + s * KD + i * D);
                    smooth += partial(step, step);
                    axpy(real(1), step, F[i]);
                }
                store(F[i], tape.F + ((long long)post_row * K + i) * D);
            }
            frame = open_frame(tape, post_row, F, z.eps);
            smooth = total(smooth);
            if (lane() == 0) sh.r[s] = smooth;
            if (CARRY_OVER) {
                h = lower(frame, y, t);
                store_coef(t, tape.coef + ((ends + s) * NUM_COEF + CARRY) * KR);
            } else {
                y = lift(frame, h, t);
                store_coef(t, tape.coef + ((ends + s) * NUM_COEF + LIFT) * KR);
                store(y, tape.lift + (ends + s) * D);
            }
        }
        if (!CARRY_OVER) {
            __syncthreads();
            if (is_end) store(y, sh.y + s * D);
            __syncthreads();
        }
        if (is_end) {
            Vec partner = h;
            if (!star.loop) {
                partner = lower(frame, load(sh.y + (1 - s) * D), t);
                store_coef(t, tape.coef + ((ends + s) * NUM_COEF + POST) * KR);
            }
            store(h, sh.x + s * 2 * D);
            store(partner, sh.x + s * 2 * D + D);
            store(h, tape.x_msg + (ends + s) * 2 * D);
            store(partner, tape.x_msg + (ends + s) * 2 * D + D);
        }
        __syncthreads();
        if (threadIdx.x == 0) tape.smooth[e] = star.loop ? sh.r[0] : sh.r[0] + sh.r[1];
        layer<MSG_IN, 2 * D, W>(w, sh.resident, sh.x, sh.x, 2 * D, sh.part, [&](int row, int c, real sum) {
            const real hid = relu(sh.share_msg[row * W + c] + sum);
            tape.hid_msg[(ends + row) * W + c] = sh.hid[row * W + c] = hid;
        });
        // the message stands in rows as far apart as the states, which the other half of the GRU reads
        layer<MSG_OUT, W, D>(w, sh.resident, sh.hid, sh.hid, W, sh.part, [&](int row, int c, real sum) {
            tape.m[(ends + row) * D + c] = sh.x[row * 2 * D + D + c] = sum + w.msg_bias[c];
        });
        layer<GRU_BOTH, D, 6 * D, 3 * D>(
            w, sh.resident, sh.x + D, sh.x, 2 * D, sh.part,
            [&](int row, int c, real sum) { sh.wide[row * 6 * D + c] = sum + w.gru_bias[c]; });
        for (int i = threadIdx.x; i < 2 * D; i += THREADS) {
            const int row = i / D, c = i % D;
            const real *a = sh.wide + row * 6 * D, *b = a + 3 * D;
            const real reset = sigmoid(a[c] + b[c]), update = sigmoid(a[D + c] + b[D + c]), state = b[2 * D + c];
            const real candidate = tanh(a[2 * D + c] + reset * state), hbar = sh.x[row * 2 * D + c];
            real* gates = tape.gates + (ends + row) * 4 * D + c;
            gates[0] = reset, gates[D] = update, gates[2 * D] = candidate, gates[3 * D] = state;
            const real out = candidate + update * (hbar - candidate);
            tape.gru_h[(ends + row) * D + c] = sh.h[i] = out;
        }
        __syncthreads();
        if (is_end) {
            h = load(sh.h + s * D);
            y = lift(frame, h, t);
            store_coef(t, tape.coef + ((ends + s) * NUM_COEF + GRU) * KR);
            store(y, sh.y + s * D);
            store(y, tape.y_ends + (ends + s) * D);
        }
        __syncthreads();
        for (int round = 0; round < ROUNDS; round++) {
            diffuse_leaves(plan, z, w, tape, star, sh, eta, e, round);
            __syncthreads();
            combine(star, sh.y, sh.collected, sh.r);
            __syncthreads();
            if (is_end && !(s && star.loop)) diffuse_end(z, w, tape, star, sh, frame, eta, e, round, h);
            __syncthreads();
        }
        if (ROUNDS == 0)
            for (int j = star.first + warp(); j < star.stop; j += WARPS) {
                load_coef(coef_before(plan, z, tape, star, e, j, 0), t);
                store(load(stalk_before(plan, z, tape, star, e, j, 0)), tape.h + (long long)(z.n0 + j) * D);
                store_coef(t, tape.t_h + (long long)(z.n0 + j) * KR);
            }
        if (s == 0) {
            const Vec apart = minus(load(sh.y), load(sh.y + D));
            const real energy = total(partial(apart, apart));
            if (lane() == 0) tape.energy[e] = star.loop ? real(0) : energy;
        }
        __syncthreads();
    }
}

// ---------------------------------------------------------------------------------------------------------------
// Backward
// ---------------------------------------------------------------------------------------------------------------

// What was collected for one frame version (see kernels.py): dN, and S in the upper triangle.
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
    alignas(16) real g[2 * D], gr[2 * D], sums[2 * D], gx[4 * D], hbar[2 * D], m[2 * D], cross[2 * D];
    alignas(16) real hid[2 * W], wide[2 * WIDE], part[2 * THREADS], collected[WARPS * 2 * D];
    real hid_frame[2 * W], hid_msg[2 * W], gates[8 * D], x_msg[4 * D];
    real r_ends[2 * D * ROUNDS + 1], y_ends[2 * D * ROUNDS + 1];
    Star star;
    alignas(16) real resident[1];
};
static_assert(sizeof(SharedBack) + sizeof(real) * resident_numbers() <= SHARED_BYTES, "too little shared memory");

// One round backward at the leaves.
__device__ void leaves_adjoint(const Plan& plan, const Sizes& z, const Weights& w, const Tape& tape, const Grads& g,
                               const Star& star, SharedBack& sh, real eta, int e, int round, Vec& gD) {
    Vec pull_u = zero(), pull_v = zero(), gain = load(w.gain);
    for (int j = star.leaf + warp(); j < star.stop; j += WARPS) {
        const real a = plan.mult_src[j], b = plan.mult_dst[j], c = step_size(eta, a + b);
        const int row_F = plan.act_F[j], row_h = plan.act_h[j];
        const Frame f = load_frame(tape, row_F);
        FrameGrad share = load_grad(z, g, row_F);
        const Vec h = load(stalk_before(plan, z, tape, star, e, j, round));
        Coef t_h, t_r, t_q, s;
        load_coef(coef_before(plan, z, tape, star, e, j, round), t_h);
        load_coef(tape.t_round + ((long long)round * z.num_active + j) * KR, t_r);
        const Vec y = subtract(f, t_h, h), r = scaled(a + b, minus(y, center(a, b, sh.y_ends + round * 2 * D)));
        const Vec q = subtract(f, t_r, r);
        Vec gh = load(g.gh + (long long)(z.n0 + j) * D), gq;
#pragma unroll
        for (int i = 0; i < E; i++) {
            gD.v[i] -= c * gh.v[i] * q.v[i];
            gq.v[i] = -c * gain.v[i] * gh.v[i];
        }
        const Vec gr = lift(f, gq, t_q);
        collect(share, gq, t_q, r, t_r);
        axpy(-a, gr, pull_u);
        axpy(-b, gr, pull_v);
        const Vec gy = scaled(a + b, minus(gr, center(a, b, sh.gr)));
        axpy(real(1), lower(f, gy, s), gh);
        collect(share, h, t_h, gy, s);
        store_grad(z, g, row_F, share);
        if (round > 0) {
            store(gh, g.gh + (long long)(z.n0 + j) * D);
        } else if (row_h >= z.base) {
            real* to = g.gh + (long long)row_h * D;
            axpy(real(1), load(to), gh);
            store(gh, to);
        }
    }
    store(pull_u, sh.collected + warp() * 2 * D);
    store(pull_v, sh.collected + warp() * 2 * D + D);
}

// Gradient of an endpoint's r in one round, into sh.gr; gh is the gradient of its stalk after the round.
__device__ void end_adjoint(const Sizes& z, const Weights& w, const Tape& tape, const Star& star, SharedBack& sh,
                            const Frame& post, FrameGrad& share, real eta, int e, int round, const Vec& gh, Vec& gD) {
    const int s = warp(), j = star.first + s;
    const Vec r = load(sh.r_ends + (2 * round + s) * D), gain = load(w.gain);
    Coef t_r, t_q;
    load_coef(tape.t_round + ((long long)round * z.num_active + j) * KR, t_r);
    const Vec q = subtract(post, t_r, r);
    const real c = step_size(eta, star.degree[s]);
    Vec gq;
#pragma unroll
    for (int i = 0; i < E; i++) {
        gD.v[i] -= c * gh.v[i] * q.v[i];
        gq.v[i] = -c * gain.v[i] * gh.v[i];
    }
    const Vec gr = lift(post, gq, t_q);
    collect(share, gq, t_q, r, t_r);
    store(gr, sh.gr + s * D);
}

extern "C" __global__ void __launch_bounds__(THREADS)
    backward(const Plan plan, const Sizes z, const Weights all_weights, const Tape all_tapes, const Grads all_grads) {
    SharedBack& sh = *reinterpret_cast<SharedBack*>(memory);
    const Tape tape = own(all_tapes, z.tape);
    const Weights w = own(all_weights, z.weights);
    const Grads g = own(all_grads, z.grads);
    const real eta = real(z.eta[blockIdx.x]);
    const int s = warp();
    Vec gD = zero();
    keep_weights(w, sh.resident);
    for (int e = z.n - 1; e >= 0; e--) {
        const long long ends = 2ll * e, last_y = 2ll * ((long long)ROUNDS * z.n + e) * D;
        const int post_row = z.n0 + 2 * e + s;
        const int row_h = s ? plan.dst_h[e] : plan.src_h[e], row_F = s ? plan.dst_F[e] : plan.src_F[e];
        const bool is_end = s < 2, acts = is_end && !(s && plan.is_loop[e]);  // of a self-loop only the first row acts
        Frame frame;
        FrameGrad share;
        Vec gh = zero(), written, apart;
        Coef t;
        if (is_end) {  // all at once: what the first steps read
            const long long row = z.n0 + plan.act_ptr[e] + (acts ? s : 0);
            frame = load_frame(tape, post_row);
            share = load_grad(z, g, post_row);
            written = load(tape.h + row * D);
            load_coef(tape.t_h + row * KR, t);
            apart = minus(load(tape.y_ends + last_y), load(tape.y_ends + last_y + D));
            if (acts) gh = load(g.gh + row * D);
        } else if (s == 2) {
            read_star(plan, e, sh.star);
        } else {
            prefetch_leaves(plan, tape, e);
            if (FRAME_UPDATE) bring(tape.hid_frame + ends * W, sh.hid_frame, 2 * W);
            bring(tape.hid_msg + ends * W, sh.hid_msg, 2 * W);
            bring(tape.gates + ends * 4 * D, sh.gates, 8 * D);
            bring(tape.x_msg + ends * 2 * D, sh.x_msg, 4 * D);
            for (int round = 0; round < ROUNDS; round++) {
                const long long at = 2ll * ((long long)round * z.n + e) * D;
                bring(tape.r_ends + at, sh.r_ends + round * 2 * D, 2 * D);
                bring(tape.y_ends + at, sh.y_ends + round * 2 * D, 2 * D);
            }
        }
        __syncthreads();
        const Star& star = sh.star;
        if (acts && !star.loop) {  // the energy's pull on the last round's output
            const Vec pull = scaled((s ? real(-2) : real(2)) * g.up_energy[e], apart);
            axpy(real(1), lift_adjoint(frame, share, written, t, pull), gh);
        }
        for (int round = ROUNDS - 1; round >= 0; round--) {
            if (acts) end_adjoint(z, w, tape, star, sh, frame, share, eta, e, round, gh, gD);
            __syncthreads();
            leaves_adjoint(plan, z, w, tape, g, star, sh, eta, e, round, gD);
            __syncthreads();
            combine(star, sh.gr, sh.collected, sh.sums);
            __syncthreads();
            if (acts) {
                const int j = star.first + s;
                load_coef(coef_before(plan, z, tape, star, e, j, round), t);
                const Vec before = load(stalk_before(plan, z, tape, star, e, j, round));
                axpy(real(1), lift_adjoint(frame, share, before, t, load(sh.sums + s * D)), gh);
            }
        }
        if (ROUNDS == 0)
            for (int j = star.leaf + warp(); j < star.stop; j += WARPS)
                if (plan.act_h[j] >= z.base) {
                    real* to = g.gh + (long long)plan.act_h[j] * D;
                    Vec sum = load(to);
                    axpy(real(1), load(g.gh + (long long)(z.n0 + j) * D), sum);
                    store(sum, to);
                }
        if (is_end) store(gh, sh.g + s * D);
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * D; i += THREADS) {  // the gates
            const int row = i / D, c = i % D;
            const real* gates = sh.gates + row * 4 * D + c;
            const real reset = gates[0], update = gates[D], candidate = gates[2 * D], state = gates[3 * D];
            const real up = sh.g[i], hbar = sh.x_msg[row * 2 * D + c];
            const real v = up * (real(1) - update) * (real(1) - candidate * candidate);
            real *out = g.d_gates + (ends + row) * 4 * D + c, *own_out = sh.wide + row * WIDE + c;
            out[0] = own_out[0] = v * reset;
            out[D] = own_out[D] = v * state * reset * (real(1) - reset);
            out[2 * D] = own_out[2 * D] = up * (hbar - candidate) * update * (real(1) - update);
            out[3 * D] = own_out[3 * D] = v;
            sh.hbar[i] = up * update;
        }
        __syncthreads();
        const real* d_gates = sh.wide;
        layer<GRU_BOTH, 3 * D, 2 * D, D>(
            w, sh.resident, d_gates + D, d_gates, WIDE, sh.part, [&](int row, int c, real sum) {
                if (c < D)
                    g.d_msg_out[(ends + row) * D + c] = sh.m[row * D + c] = sum;
                else
                    sh.hbar[row * D + c - D] += sum;
            });
        layer<MSG_OUT, D, W>(w, sh.resident, sh.m, sh.m, D, sh.part, [&](int row, int c, real sum) {
            sum = sh.hid_msg[row * W + c] > real(0) ? sum : real(0);
            g.d_msg_hid[(ends + row) * W + c] = sh.hid[row * W + c] = sum;
        });
        layer<MSG_IN, W, 2 * D>(w, sh.resident, sh.hid, sh.hid, W, sh.part, [&](int row, int c, real sum) {
            sh.gx[row * 2 * D + c] = c < D ? sum + sh.hbar[row * D + c] : sum;
        });

        // carry-over
        Vec own_gx, partner_gx, gy = zero(), g_pre = zero();
        if (is_end) own_gx = load(sh.gx + s * 2 * D), partner_gx = load(sh.gx + s * 2 * D + D);
        if (acts) {
            const real* y = CARRY_OVER ? tape.y_pre : tape.lift;
            if (star.loop) {
                axpy(real(1), partner_gx, own_gx);
            } else {
                load_coef(tape.coef + ((ends + s) * NUM_COEF + POST) * KR, t);
                store(lower_adjoint(frame, share, load(y + (ends + 1 - s) * D), t, partner_gx), sh.cross + (1 - s) * D);
            }
            if (CARRY_OVER) {
                load_coef(tape.coef + ((ends + s) * NUM_COEF + CARRY) * KR, t);
                gy = lower_adjoint(frame, share, load(y + (ends + s) * D), t, own_gx);
            } else {
                g_pre = own_gx;
            }
        }
        __syncthreads();
        if (acts && !star.loop) {
            const Vec cross = load(sh.cross + s * D);
            if (CARRY_OVER) {
                axpy(real(1), cross, gy);
            } else {
                load_coef(tape.coef + ((ends + s) * NUM_COEF + LIFT) * KR, t);
                const Vec x = load(tape.x_msg + (ends + s) * 2 * D);
                axpy(real(1), lift_adjoint(frame, share, x, t, cross), g_pre);
            }
        }

        // the frames after the event are complete
        Vec step[K];
        if (is_end) {
#pragma unroll
            for (int i = 0; i < K; i++) step[i] = load(g.gF + ((long long)post_row * K + i) * D);
            close_frame(tape, frame, share, post_row, step);
            if (star.loop && s == 1)
#pragma unroll
                for (int i = 0; i < K; i++) {
                    store(step[i], sh.wide + i * D);
                    step[i] = zero();
                }
        }
        __syncthreads();
        if (is_end) {
            if (star.loop && s == 0)
#pragma unroll
                for (int i = 0; i < K; i++) axpy(real(1), load(sh.wide + i * D), step[i]);
#pragma unroll
            for (int i = 0; i < K; i++) {
                if (acts && row_F >= z.base) {
                    real* to = g.gF + ((long long)row_F * K + i) * D;
                    Vec sum = load(to);
                    axpy(real(1), step[i], sum);
                    store(sum, to);
                }
                if (FRAME_UPDATE && acts)
                    axpy(real(2) * g.up_smooth[e], load(tape.dF + (ends + s) * KD + i * D), step[i]);
                store(step[i], g.d_frame_out + (ends + s) * KD + i * D);
                store(step[i], sh.wide + s * WIDE + i * D);
            }
        }
        __syncthreads();
        if (FRAME_UPDATE) {
            layer<FRAME_OUT, KD, W>(w, sh.resident, sh.wide, sh.wide, WIDE, sh.part, [&](int row, int c, real sum) {
                sum = sh.hid_frame[row * W + c] > real(0) ? sum : real(0);
                g.d_frame_hid[(ends + row) * W + c] = sh.hid[row * W + c] = sum;
            });
            layer<FRAME_IN, W, 2 * D>(w, sh.resident, sh.hid, sh.hid, W, sh.part,
                                      [&](int row, int c, real sum) { sh.gx[row * 2 * D + c] = sum; });
        }

        // what the event read
        if (acts) frame = load_frame(tape, row_F), share = load_grad(z, g, row_F);
        if (FRAME_UPDATE) {
            if (acts) {
                own_gx = load(sh.gx + s * 2 * D), partner_gx = load(sh.gx + s * 2 * D + D);
                axpy(real(1), own_gx, g_pre);
                if (star.loop) {
                    axpy(real(1), partner_gx, g_pre);
                } else {
                    load_coef(tape.coef + ((ends + s) * NUM_COEF + PRE) * KR, t);
                    const Vec y = load(tape.y_pre + (ends + 1 - s) * D);
                    store(lower_adjoint(frame, share, y, t, partner_gx), sh.cross + (1 - s) * D);
                }
            }
            __syncthreads();
            if (acts && !star.loop) axpy(real(1), load(sh.cross + s * D), gy);
        }
        if (acts) {
            load_coef(tape.t_h + (long long)row_h * KR, t);
            const Vec h = load(tape.h + (long long)row_h * D);
            axpy(real(1), lift_adjoint(frame, share, h, t, gy), g_pre);
            store_grad(z, g, row_F, share);
            if (row_h >= z.base) {
                real* to = g.gh + (long long)row_h * D;
                axpy(real(1), load(to), g_pre);
                store(g_pre, to);
            }
        }
        __syncthreads();
    }
    store(gD, sh.collected + warp() * D);
    __syncthreads();
    for (int c = threadIdx.x; c < D; c += THREADS) {
        real sum = 0;
        for (int i = 0; i < WARPS; i++) sum += sh.collected[i * D + c];
        g.gD[c] = sum;
    }
    if (z.base == 0)  // gradients of the initial frames are wanted too
        for (int row = warp(); row < z.n0; row += WARPS) {
            Vec out[K];
#pragma unroll
            for (int i = 0; i < K; i++) out[i] = load(g.gF + ((long long)row * K + i) * D);
            close_frame(tape, load_frame(tape, row), load_grad(z, g, row), row, out);
#pragma unroll
            for (int i = 0; i < K; i++) store(out[i], g.gF + ((long long)row * K + i) * D);
        }
}

// The recurrence of a chunk on a GPU, forward and backward: one thread block a stream, event after event.
//
// The notation, the version logs and the adjoints are those of tsnn/engine/kernels.py. Two warps hold the endpoints,
// source and destination; every warp takes leaves of the active graph in turn; the whole block shares the layers of the
// networks, two rows at a time. A warp keeps a vector of D numbers in its lanes' registers. All sums run in a fixed order.
//
// The including text defines REAL, D, K, KR (reflectors applied: K, or 0 without transport), W, ROUNDS, FRAME_UPDATE,
// CARRY_OVER, THREADS and SHARED_BYTES.

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

struct Weights {  // as rows of inputs; backward as rows of outputs, the state part of the GRU in the order n, r, z
    real *frame_in, *frame_out, *msg_in, *msg_out, *gru_in, *gru_state;
    real *frame_bias, *msg_bias, *gru_in_bias, *gru_state_bias, *gain;
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

// 2 <N_i, x> of all reflectors: their shuffles overlap.
__device__ void project(const Frame& f, const Vec& x, Coef& p) {
#pragma unroll
    for (int i = 0; i < KR; i++) p[i] = partial(f.N[i], x);
#pragma unroll
    for (int gap = 16; gap; gap >>= 1)
#pragma unroll
        for (int i = 0; i < KR; i++) p[i] += __shfl_xor_sync(0xffffffffu, p[i], gap);
#pragma unroll
    for (int i = 0; i < KR; i++) p[i] *= real(2);
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

// Unit reflectors and Gram matrix of version `row`, whose parameters are in F.
__device__ Frame open_frame(const Tape& tape, int row, double eps) {
    Frame f;
#pragma unroll
    for (int i = 0; i < KR; i++) {
        Vec raw = load(tape.F + ((long long)row * K + i) * D);
        real length = sqrt(total(partial(raw, raw)));
        real scale = length > real(eps) ? real(1) / length : real(0);
        f.N[i] = scaled(scale, raw);
        store(f.N[i], tape.N + ((long long)row * KR + i) * D);
        if (lane() == 0) tape.inv[(long long)row * KR + i] = scale;
    }
#pragma unroll
    for (int i = 0; i < KR; i++) {
#pragma unroll
        for (int j = 0; j < i; j++) {
            real g = real(2) * total(partial(f.N[i], f.N[j]));
            f.G[i][j] = f.G[j][i] = g;
        }
        f.G[i][i] = real(0);
    }
#pragma unroll
    for (int i = 0; i < KR; i++)
#pragma unroll
        for (int j = 0; j < KR; j++)
            if (lane() == 0) tape.G[((long long)row * KR + i) * KR + j] = f.G[i][j];
    return f;
}

// ---------------------------------------------------------------------------------------------------------------
// Layers: two rows, the whole block
// ---------------------------------------------------------------------------------------------------------------

// done(row, column, sum_j x[row][j] M[j][column]) for two rows of x. The block's threads share columns and inputs; `part`
// holds 2 THREADS numbers. Ends with all results handed over and the block in step.
template <int IN, int OUT, class Done>
__device__ void layer(const real* __restrict__ M, const real* x, int ldx, real* part, Done done) {
    constexpr int PADDED = (OUT + 31) / 32 * 32;
    constexpr int COLS = PADDED < THREADS ? PADDED : THREADS;
    constexpr int PARTS = THREADS / COLS, STEP = (IN + PARTS - 1) / PARTS;
    const int c = threadIdx.x % COLS, p = threadIdx.x / COLS;
    for (int first = 0; first < OUT; first += COLS) {
        real s0 = 0, s1 = 0;
        if (p < PARTS && first + c < OUT) {
            const int begin = p * STEP, end = begin + STEP < IN ? begin + STEP : IN;
            const real* column = M + first + c;
#pragma unroll 16
            for (int j = begin; j < end; j++) {
                const real w = __ldg(column + (long long)j * OUT);
                s0 += w * x[j];
                s1 += w * x[ldx + j];
            }
        }
        if (p < PARTS) {
            part[p * 2 * COLS + c] = s0;
            part[p * 2 * COLS + COLS + c] = s1;
        }
        __syncthreads();
        for (int i = threadIdx.x; i < 2 * COLS; i += THREADS) {
            const int row = i / COLS, column = first + i % COLS;
            if (column < OUT) {
                real s = 0;
#pragma unroll
                for (int q = 0; q < PARTS; q++) s += part[q * 2 * COLS + i];
                done(row, column, s);
            }
        }
        __syncthreads();
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

__device__ Star read_star(const Plan& plan, int e) {
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
    return star;
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
    real x[4 * D], y[2 * D], h[2 * D], r[2 * D], hid[2 * W], wide[2 * WIDE], wider[2 * WIDE];
    real part[2 * THREADS], collected[WARPS * 2 * D];
};

extern __shared__ char memory[];
static_assert(sizeof(Shared) <= SHARED_BYTES, "too little shared memory asked for");

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
    for (int row = warp(); row < z.n0; row += WARPS) {
        const Frame f = open_frame(tape, row, z.eps);
        Coef t;
        coefficients(f, load(tape.h + (long long)row * D), t);
        store_coef(t, tape.t_h + (long long)row * KR);
    }
    __syncthreads();
    for (int e = 0; e < z.n; e++) {
        const Star star = read_star(plan, e);
        const long long ends = 2ll * e;
        const int row_h = s ? plan.dst_h[e] : plan.src_h[e], row_F = s ? plan.dst_F[e] : plan.src_F[e];
        const int post_row = z.n0 + 2 * e + s;
        Frame frame;
        Vec h, y;
        Coef t;
        if (is_end) {  // the endpoint in synchronized coordinates
            frame = load_frame(tape, row_F);
            h = load(tape.h + (long long)row_h * D);
            load_coef(tape.t_h + (long long)row_h * KR, t);
            y = subtract(frame, t, h);
            store(y, sh.y + s * D);
            store(y, tape.y_pre + (ends + s) * D);
        }
        __syncthreads();
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
            layer<2 * D, W>(w.frame_in, sh.x, 2 * D, sh.part, [&](int row, int c, real sum) {
                real* hid = tape.hid_frame + (ends + row) * W + c;
                *hid = sh.hid[row * W + c] = relu(*hid + sum);
            });
            layer<W, KD>(w.frame_out, sh.hid, W, sh.part, [&](int row, int c, real sum) {
                tape.dF[(ends + row) * KD + c] = sh.wide[row * WIDE + c] = sum + w.frame_bias[c];
            });
        }
        if (is_end) {  // the new frame
            real smooth = 0;
#pragma unroll
            for (int i = 0; i < K; i++) {
                Vec moved = load(tape.F + ((long long)row_F * K + i) * D);
                if (FRAME_UPDATE) {
                    const Vec step = load(sh.wide + s * WIDE + i * D);
                    smooth += partial(step, step);
                    axpy(real(1), step, moved);
                }
                store(moved, tape.F + ((long long)post_row * K + i) * D);
            }
            smooth = total(smooth);
            if (lane() == 0) sh.r[s] = smooth;
            __syncwarp();
            frame = open_frame(tape, post_row, z.eps);
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
        layer<2 * D, W>(w.msg_in, sh.x, 2 * D, sh.part, [&](int row, int c, real sum) {
            real* hid = tape.hid_msg + (ends + row) * W + c;
            *hid = sh.hid[row * W + c] = relu(*hid + sum);
        });
        layer<W, D>(w.msg_out, sh.hid, W, sh.part, [&](int row, int c, real sum) {
            tape.m[(ends + row) * D + c] = sh.h[row * D + c] = sum + w.msg_bias[c];
        });
        layer<D, 3 * D>(w.gru_in, sh.h, D, sh.part,
                        [&](int row, int c, real sum) { sh.wide[row * WIDE + c] = sum + w.gru_in_bias[c]; });
        layer<D, 3 * D>(w.gru_state, sh.x, 2 * D, sh.part,
                        [&](int row, int c, real sum) { sh.wider[row * WIDE + c] = sum + w.gru_state_bias[c]; });
        for (int i = threadIdx.x; i < 2 * D; i += THREADS) {
            const int row = i / D, c = i % D;
            const real *a = sh.wide + row * WIDE, *b = sh.wider + row * WIDE;
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

// The frame's share of z = U x: coefficients t, gradient dz, and s the coefficients of U^T dz. For z = U^T x exchange x and
// dz, t and s.
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
    real g[2 * D], gr[2 * D], sums[2 * D], y[2 * D], gx[4 * D], hbar[2 * D], m[2 * D], cross[2 * D], hid[2 * W];
    real wide[2 * WIDE], part[2 * THREADS], collected[WARPS * 2 * D], gain[WARPS * D];
};
static_assert(sizeof(SharedBack) <= SHARED_BYTES, "too little shared memory asked for");

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
        const Vec y = subtract(f, t_h, h), r = scaled(a + b, minus(y, center(a, b, sh.y)));
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
    const Vec r = load(tape.r_ends + (2ll * ((long long)round * z.n + e) + s) * D), gain = load(w.gain);
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
    for (int e = z.n - 1; e >= 0; e--) {
        const Star star = read_star(plan, e);
        const long long ends = 2ll * e;
        const int post_row = z.n0 + 2 * e + s;
        const int row_h = s ? plan.dst_h[e] : plan.src_h[e], row_F = s ? plan.dst_F[e] : plan.src_F[e];
        const bool is_end = s < 2, acts = is_end && !(s && star.loop);  // of a self-loop only the first row acts
        Frame frame;
        FrameGrad share;
        Vec gh = zero();
        Coef t;
        if (is_end) {
            frame = load_frame(tape, post_row);
            share = load_grad(z, g, post_row);
        }
        if (acts) {
            const long long row = z.n0 + star.first + s;
            gh = load(g.gh + row * D);
            if (!star.loop) {  // the energy's pull on the last round's output
                const real* y = tape.y_ends + 2ll * ((long long)ROUNDS * z.n + e) * D;
                const real force = (s ? real(-2) : real(2)) * g.up_energy[e];
                load_coef(tape.t_h + row * KR, t);
                const Vec pull = scaled(force, minus(load(y), load(y + D)));
                axpy(real(1), lift_adjoint(frame, share, load(tape.h + row * D), t, pull), gh);
            }
        }
        for (int round = ROUNDS - 1; round >= 0; round--) {
            for (int i = threadIdx.x; i < 2 * D; i += THREADS)
                sh.y[i] = tape.y_ends[2ll * ((long long)round * z.n + e) * D + i];
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
            const real* gates = tape.gates + (ends + row) * 4 * D + c;
            const real reset = gates[0], update = gates[D], candidate = gates[2 * D], state = gates[3 * D];
            const real up = sh.g[i], hbar = tape.x_msg[(ends + row) * 2 * D + c];
            const real v = up * (real(1) - update) * (real(1) - candidate * candidate);
            real *out = g.d_gates + (ends + row) * 4 * D + c, *own_out = sh.wide + row * WIDE + c;
            out[0] = own_out[0] = v * reset;
            out[D] = own_out[D] = v * state * reset * (real(1) - reset);
            out[2 * D] = own_out[2 * D] = up * (hbar - candidate) * update * (real(1) - update);
            out[3 * D] = own_out[3 * D] = v;
            sh.hbar[i] = up * update;
        }
        __syncthreads();
        layer<3 * D, D>(w.gru_in, sh.wide + D, WIDE, sh.part, [&](int row, int c, real sum) {
            g.d_msg_out[(ends + row) * D + c] = sh.m[row * D + c] = sum;
        });
        layer<3 * D, D>(w.gru_state, sh.wide, WIDE, sh.part,
                        [&](int row, int c, real sum) { sh.hbar[row * D + c] += sum; });
        layer<D, W>(w.msg_out, sh.m, D, sh.part, [&](int row, int c, real sum) {
            sum = tape.hid_msg[(ends + row) * W + c] > real(0) ? sum : real(0);
            g.d_msg_hid[(ends + row) * W + c] = sh.hid[row * W + c] = sum;
        });
        layer<W, 2 * D>(w.msg_in, sh.hid, W, sh.part, [&](int row, int c, real sum) {
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
            layer<KD, W>(w.frame_out, sh.wide, WIDE, sh.part, [&](int row, int c, real sum) {
                sum = tape.hid_frame[(ends + row) * W + c] > real(0) ? sum : real(0);
                g.d_frame_hid[(ends + row) * W + c] = sh.hid[row * W + c] = sum;
            });
            layer<W, 2 * D>(w.frame_in, sh.hid, W, sh.part,
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
    store(gD, sh.gain + warp() * D);
    __syncthreads();
    for (int c = threadIdx.x; c < D; c += THREADS) {
        real sum = 0;
        for (int i = 0; i < WARPS; i++) sum += sh.gain[i * D + c];
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

// Elementary functions for generated kernels: branch-free float code that GCC and Clang vectorise inside
// "#pragma omp simd" loops. Each is within 4 ulp of the true value (2 for exp, log, tanh, sigmoid, sqrt) and gives the
// infinities, NaNs, signed zeros and denormals of C's libm unless said otherwise.
//
// Polynomials are weighted minimax fits made for this file with mpmath; reductions follow Cody and Waite, "Software
// Manual for the Elementary Functions" (1980).
#ifndef GTC_MATH_H
#define GTC_MATH_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#if defined(__GNUC__) && !defined(__clang__)
// cgo's flag list allows none of -fno-math-errno, -fno-trapping-math and -mprefer-vector-width, so they are set here
// for every function that follows.
#pragma GCC optimize("no-math-errno", "no-trapping-math")
#if defined(__AVX512F__)
#pragma GCC target("prefer-vector-width=512")
#endif
#endif

#define GTC_FN static inline __attribute__((always_inline, unused))

GTC_FN int32_t gtc_bits(float x) {
	int32_t i;
	memcpy(&i, &x, 4);
	return i;
}
GTC_FN float gtc_float(int32_t i) {
	float x;
	memcpy(&x, &i, 4);
	return x;
}
GTC_FN int64_t gtc_bits64(double x) {
	int64_t i;
	memcpy(&i, &x, 8);
	return i;
}
GTC_FN double gtc_double(int64_t i) {
	double x;
	memcpy(&x, &i, 8);
	return x;
}

// gtc_rintf rounds to nearest even for |x| < 2^22: adding 1.5 * 2^23 pushes the fraction out of the word.
GTC_FN float gtc_rintf(float x) { return (x + 12582912.0f) - 12582912.0f; }

// gtc_absf and gtc_copysignf work on bits, so that they are right for NaN and -0.
GTC_FN float gtc_absf(float x) { return gtc_float(gtc_bits(x) & 0x7fffffff); }
GTC_FN float gtc_copysignf(float x, float s) { return gtc_float((gtc_bits(x) & 0x7fffffff) | (gtc_bits(s) & (int32_t)0x80000000)); }

// gtc_maxf and gtc_minf return NaN when either argument is NaN, as PyTorch's maximum and minimum do.
GTC_FN float gtc_maxf(float a, float b) { return a > b ? a : (b == b ? b : b) + (a == a ? 0 : a); }
GTC_FN float gtc_minf(float a, float b) { return a < b ? a : (b == b ? b : b) + (a == a ? 0 : a); }

// gtc_expf: e^x = 2^n e^r with |r| <= ln 2 / 2; 2^n in two factors so that denormal results and overflow come out right.
// Below -104 the result is set to 0 rather than computed: masked scores are -inf, and arithmetic that makes a denormal
// costs over a hundred cycles.
GTC_FN float gtc_expf(float x) {
	int none = x < -104.0f;
	float c = x > 89.0f ? 89.0f : x;
	c = none ? 0.0f : c;
	float n = gtc_rintf(c * 1.44269504f);
	float r = c - n * 0.693359375f;
	r = r + n * 2.12194440e-4f;
	float q = 0.00139508335f;
	q = q * r + 0.00836908828f;
	q = q * r + 0.0416662007f;
	q = q * r + 0.166665172f;
	q = q * r + 0.50000001f;
	float p = r + r * r * q + 1.0f;
	int32_t i = (int32_t)n, h = i >> 1;
	float y = p * gtc_float((h + 127) << 23) * gtc_float((i - h + 127) << 23);
	return none ? 0.0f : y;
}

// gtc_logf: x = 2^e m with m in [sqrt(1/2), sqrt 2).
GTC_FN float gtc_logf(float x) {
	int tiny = x < 1.17549435e-38f;
	float s = tiny ? x * 33554432.0f : x;
	int32_t b = gtc_bits(s), t = b - 0x3f3504f3;
	float e = (float)(t >> 23) - (tiny ? 25.0f : 0.0f);
	float f = gtc_float((t & 0x007fffff) + 0x3f3504f3) - 1.0f;
	float q = 0.0692586495f;
	q = q * f - 0.118078586f;
	q = q * f + 0.118779143f;
	q = q * f - 0.123818063f;
	q = q * f + 0.142177157f;
	q = q * f - 0.166693567f;
	q = q * f + 0.200022731f;
	q = q * f - 0.249999853f;
	q = q * f + 0.333333098f;
	float z = f * f;
	float y = z * f * q + e * -2.12194440e-4f;
	y = y - 0.5f * z;
	y = f + y + e * 0.693359375f;
	y = x > 3.40282347e38f ? x : y;           // +inf
	y = x == 0.0f ? -INFINITY : y;
	return x >= 0.0f ? y : NAN;               // negative or NaN
}

// gtc_log1pf: the rounding error of u = 1 + x is put back as (x - (u - 1)) / u.
GTC_FN float gtc_log1pf(float x) {
	float u = 1.0f + x;
	float d = x - (u - 1.0f);
	float y = gtc_logf(u);
	float z = y + d / u;
	z = x > 1.6e7f ? y : z; // u == x: the correction is nothing, or inf - inf
	return u == 1.0f ? x : (u == 0.0f ? y : z);
}

// gtc_expm1f: a polynomial near 0, where e^x - 1 would cancel.
GTC_FN float gtc_expm1f(float x) {
	float q = 0.000199990684f;
	q = q * x + 0.00140018516f;
	q = q * x + 0.0083330514f;
	q = q * x + 0.0416652041f;
	q = q * x + 0.166666682f;
	q = q * x + 0.500000047f;
	float p = x + x * x * q;
	float e = gtc_expf(x) - 1.0f;
	return gtc_absf(x) < 0.5f ? gtc_copysignf(p, x) : e;
}

GTC_FN float gtc_tanhf(float x) {
	float a = gtc_absf(x), z = x * x;
	float q = -0.00565705528f;
	q = q * z + 0.0205987417f;
	q = q * z - 0.0537282583f;
	q = q * z + 0.133313178f;
	q = q * z - 0.333332779f;
	float p = x + x * z * q;
	float t = 1.0f - 2.0f / (gtc_expf(2.0f * a) + 1.0f);
	return gtc_copysignf(a < 0.625f ? p : t, x) + (x == x ? -0.0f : x);
}

// gtc_sigmoidf uses e^-|x|, so that it neither overflows nor loses the tail.
GTC_FN float gtc_sigmoidf(float x) {
	float e = gtc_expf(-gtc_absf(x));
	float d = 1.0f / (1.0f + e);
	return x >= 0.0f ? d : e * d;
}

// gtc_softplusf: log(1 + e^x).
GTC_FN float gtc_softplusf(float x) {
	float t = gtc_log1pf(gtc_expf(-gtc_absf(x)));
	return (x > 0.0f ? x : 0.0f) + t;
}

// gtc_erff: an odd polynomial below 1, 1 - exp(-t (1.128 + ...)) above.
GTC_FN float gtc_erff(float x) {
	float t = gtc_absf(x), z = x * x;
	float s = 7.8891195e-05f;
	s = s * z - 0.000802084127f;
	s = s * z + 0.00518953534f;
	s = s * z - 0.0268544446f;
	s = s * z + 0.112836002f;
	s = s * z - 0.376126271f;
	s = s * z + 0.128379166f;
	s = x + x * s;
	float c = t > 4.1f ? 4.1f : t;
	float q = -2.08194198e-06f;
	q = q * c + 3.34870967e-05f;
	q = q * c - 0.000212755768f;
	q = q * c + 0.000496542015f;
	q = q * c + 0.00184114132f;
	q = q * c - 0.0213161547f;
	q = q * c + 0.104227956f;
	q = q * c + 0.636066066f;
	q = q * c + 1.12847131f;
	float b = 1.0f - gtc_expf(-c * q);
	return t < 0.975f ? s : gtc_copysignf(b, x) + (x == x ? 0.0f : x);
}

// gtc_ncdff: the normal distribution function, (1 + erf(x / sqrt 2)) / 2, to 2e-7 and, in the left tail, to a few 1e-6 of
// itself. The tail is exp(-x^2 / 2) times a polynomial in v, where 1 - v = 1 / (1 + |x| / 4): the form of Hastings,
// "Approximations for Digital Computers" (1955). The bell exp(-x^2 / 2) is one with that of a density computed beside it.
GTC_FN float gtc_ncdff(float x) {
	float v = 1.0f - 1.0f / (1.0f + 0.25f * gtc_absf(x));
	float q = 0.0953362816f;
	q = q * v - 0.307315071f;
	q = q * v + 0.146819888f;
	q = q * v + 0.862275483f;
	q = q * v - 2.10535814f;
	q = q * v + 2.40416361f;
	q = q * v - 1.59576784f;
	q = q * v + 0.5f;
	float z = x * x;
	float tail = gtc_expf(z * -0.5f) * q;
	return x < 0.0f ? tail : 1.0f - tail;
}

// gtc_rsqrt_core: 1 / sqrt(x) for normal x by four Newton steps from the exponent-halving guess. GCC refuses to
// vectorise sqrtf while errno may be set by it, and the option that says otherwise cannot be given through cgo.
GTC_FN float gtc_rsqrt_core(float x) {
	float y = gtc_float(0x5f375a86 - (gtc_bits(x) >> 1)), h = 0.5f * x;
	y = y * (1.5f - h * y * y);
	y = y * (1.5f - h * y * y);
	y = y * (1.5f - h * y * y);
	return y;
}
GTC_FN float gtc_sqrtf(float x) {
	int tiny = x < 1e-30f;
	float w = tiny ? x * 2.81474976710656e14f : x; // 2^48
	float y = gtc_rsqrt_core(w), s = w * y;
	s = s + 0.5f * y * (w - s * s);
	s = tiny ? s * 5.96046448e-08f : s;
	s = (x == 0.0f || x > 3.40282347e38f) ? x : s;
	return x >= 0.0f ? s : NAN;
}
GTC_FN float gtc_rsqrtf(float x) {
	int tiny = x < 1e-30f;
	float w = tiny ? x * 2.81474976710656e14f : x; // 2^48
	float y = gtc_rsqrt_core(w), a = w * y;
	y = y + 0.5f * y * (1.0f - a * y);
	y = tiny ? y * 16777216.0f : y;
	y = x > 3.40282347e38f ? 0.0f : y;
	y = x == 0.0f ? gtc_copysignf(INFINITY, x) : y;
	return (x >= 0.0f) ? y : NAN;
}

// gtc_trig reduces x by multiples of pi/2 in double precision, which is exact enough for |x| <= 2^28; beyond that the
// result loses accuracy (it stays in [-1, 1]), and it is NaN for infinities. quadrant 0 gives sine, 1 cosine.
GTC_FN float gtc_trig(float x, int32_t quadrant) {
	float w = gtc_absf(x) <= 1e9f ? x : (x - x) + 0.0f * x;
	double n = ((double)w * 0.63661977236758134 + 6755399441055744.0) - 6755399441055744.0;
	float r = (float)((((double)w - n * 1.5707963109016418) - n * 1.5893254712295857e-08) - n * 6.123233995736766e-17); // exact products: 25 bits times 28
	int32_t i = (int32_t)n + quadrant;
	float z = r * r;
	float s = 2.7182513e-06f;
	s = s * z - 0.000198393286f;
	s = s * z + 0.00833332937f;
	s = s * z - 0.166666666f;
	s = r + r * z * s;
	float c = -2.72096777e-07f;
	c = c * z + 2.47995133e-05f;
	c = c * z - 0.00138888837f;
	c = c * z + 0.0416666666f;
	c = 1.0f - 0.5f * z + z * z * c;
	float y = (i & 1) ? c : s;
	y = gtc_float(gtc_bits(y) ^ ((i & 2) << 30));
	return (x == 0.0f && quadrant == 0) ? x : y + (w - w);
}
GTC_FN float gtc_sinf(float x) { return gtc_trig(x, 0); }
GTC_FN float gtc_cosf(float x) { return gtc_trig(x, 1); }

// gtc_powf: 2^(y log2 x) with both in double precision, then C's special cases.
GTC_FN float gtc_powf(float x, float y) {
	float ax = gtc_absf(x);
	double d = (double)ax;
	int64_t b = gtc_bits64(d), t = b - 0x3fe6a09e667f3bcdLL;
	double e = (double)(int32_t)(t >> 52);
	double m = gtc_double((t & 0x000fffffffffffffLL) + 0x3fe6a09e667f3bcdLL);
	double s = (m - 1.0) / (m + 1.0), z = s * s;
	double q = 0.084106585424481073;
	q = q * z + 0.090617617878386417;
	q = q * z + 0.11111687586487384;
	q = q * z + 0.14285708542030731;
	q = q * z + 0.20000000026264642;
	q = q * z + 0.3333333333329333;
	double l = (e + 2.8853900817779268 * (s + s * z * q)) * (double)y;
	l = l > 1000.0 ? 1000.0 : l;
	l = l < -1000.0 ? -1000.0 : l;
	double n = (l + 6755399441055744.0) - 6755399441055744.0, r = l - n;
	double p = 1.0207951035324058e-07;
	p = p * r + 1.3259466051419084e-06;
	p = p * r + 1.5252657489781546e-05;
	p = p * r + 0.00015403434604730219;
	p = p * r + 0.0013333558239740878;
	p = p * r + 0.0096181291926958467;
	p = p * r + 0.05550410866428257;
	p = p * r + 0.24022650695646164;
	p = p * r + 0.69314718055995705;
	p = p * r + 1.0;
	float v = (float)(p * gtc_double(((int64_t)(int32_t)n + 1023) << 52));
	float inf = INFINITY;
	// |x| is 0 or inf: the logarithm above is meaningless.
	float edge = (ax == 0.0f) == (y > 0.0f) ? 0.0f : inf;
	v = (ax == 0.0f || ax == inf) ? edge : v;
	// |y| is inf: |x| against 1 decides.
	float grow = (ax > 1.0f) == (y > 0.0f) ? inf : 0.0f;
	v = gtc_absf(y) == inf ? (ax == 1.0f ? 1.0f : grow) : v;
	float ty = gtc_absf(y) < 8388608.0f ? truncf(y) : y, hy = 0.5f * y;
	float th = gtc_absf(hy) < 8388608.0f ? truncf(hy) : hy;
	int odd = ty == y && th != hy;
	v = (gtc_bits(x) < 0 && odd) ? -v : v;
	v = (x < 0.0f && ty != y && ax < inf) ? NAN : v;
	v = (x != x || y != y) ? x + y : v;
	return (y == 0.0f || x == 1.0f) ? 1.0f : v;
}

#endif

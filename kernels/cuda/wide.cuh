// The types that elements are computed in.
#pragma once
#include "gtc.cuh"

namespace gtc {

// wide is the type that T is computed in: floats of 16 bits in float.
template <class T> struct wide_type { using type = T; };
template <> struct wide_type<bf16> { using type = float; };
template <> struct wide_type<f16> { using type = float; };
template <class T> using wide = typename wide_type<T>::type;

template <class T> GTC_FN wide<T> widen(T x) {
	if constexpr (sizeof(T) == sizeof(wide<T>))
		return x;
	else
		return to_float(x);
}
template <class T> GTC_FN T narrow(wide<T> x) {
	if constexpr (sizeof(T) == sizeof(wide<T>))
		return x;
	else
		return from_float<T>(x);
}

} // namespace gtc

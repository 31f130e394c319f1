#ifndef FLOTILLA_SERVICES_RPC_FREED_H_
#define FLOTILLA_SERVICES_RPC_FREED_H_

namespace flotilla {

// The deleter of a unique_ptr to what a C library frees: OpenSSL's.
template <typename T, void (*kFree)(T*)>
struct Freed {
  void operator()(T* it) const { kFree(it); }
};

}  // namespace flotilla

#endif  // FLOTILLA_SERVICES_RPC_FREED_H_

// The four functions of libunwind that Debian's libglog.a calls for its stack traces,
// by glibc's backtrace(): libunwind.a cannot be linked into programs that may be
// loaded anywhere.

#include <execinfo.h>
#define UNW_LOCAL_ONLY
#include <libunwind.h>

enum { kMostFrames = 64 };

struct Cursor {
  int count, at;
  void* frames[kMostFrames];
};
_Static_assert(sizeof(struct Cursor) <= sizeof(unw_cursor_t), "no room for frames");

#undef unw_tdep_getcontext
int UNW_ARCH_OBJ(getcontext)(unw_tdep_context_t* context) {
  (void)context;
  return 0;
}

int unw_init_local(unw_cursor_t* cursor, unw_context_t* context) {
  (void)context;
  struct Cursor* self = (struct Cursor*)cursor;
  self->count = backtrace(self->frames, kMostFrames);
  self->at = 0;
  return 0;
}

int unw_get_reg(unw_cursor_t* cursor, int reg, unw_word_t* value) {
  const struct Cursor* self = (const struct Cursor*)cursor;
  if (reg != UNW_REG_IP || self->at >= self->count) return -UNW_EBADREG;
  *value = (unw_word_t)self->frames[self->at];
  return 0;
}

int unw_step(unw_cursor_t* cursor) {
  struct Cursor* self = (struct Cursor*)cursor;
  return ++self->at < self->count ? 1 : 0;
}

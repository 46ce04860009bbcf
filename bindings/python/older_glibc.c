/* What archives and headers of a newer glibc ask of it and an older one has not, so that a wheel runs on systems from glibc 2.28 on. Linked only with
 * ASSAY_PYTHON_SYSROOT. The linker sends calls of exp, log, log2 and pow here (--wrap): the symbols that glibc 2.29 made new compute the same and only report errors
 * another way. */
#ifndef __x86_64__
#error "the versions of symbols here are those of x86-64"
#endif
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/random.h>
#include <time.h>

/* glibc 2.32: whether the process has one thread. 0: perhaps more, which is always safe. */
char __libc_single_threaded = 0;

/* glibc 2.36; libstdc++'s std::random_device. */
uint32_t arc4random(void) {
  uint32_t value;
  ssize_t n_read;
  do n_read = getrandom(&value, sizeof value, 0);
  while (n_read < 0 && errno == EINTR);
  if (n_read != (ssize_t)sizeof value) abort(); /* as glibc's own, where the system has no randomness */
  return value;
}

/* glibc 2.30; libstdc++'s waits for a time. Its own, where the process has it; else by the clock that conditions have by default. libstdc++ asks the right
 * clock again before it tells its caller that the time is over. */
int pthread_cond_clockwait(pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until) {
  typedef int (*Wait)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);
  union {
    void *symbol;
    Wait call;
  } own;
  struct timespec here, there, end;
  own.symbol = dlvsym(RTLD_DEFAULT, "pthread_cond_clockwait", "GLIBC_2.34");
  if (!own.symbol) own.symbol = dlvsym(RTLD_DEFAULT, "pthread_cond_clockwait", "GLIBC_2.30");
  if (own.symbol) return own.call(condition, mutex, clock, until);
  clock_gettime(clock, &here);
  clock_gettime(CLOCK_REALTIME, &there);
  end.tv_sec = there.tv_sec + (until->tv_sec - here.tv_sec);
  end.tv_nsec = there.tv_nsec + (until->tv_nsec - here.tv_nsec);
  if (end.tv_nsec < 0) {
    end.tv_nsec += 1000000000;
    --end.tv_sec;
  } else if (end.tv_nsec >= 1000000000) {
    end.tv_nsec -= 1000000000;
    ++end.tv_sec;
  }
  return pthread_cond_timedwait(condition, mutex, &end);
}

double older_exp(double x);
double older_log(double x);
double older_log2(double x);
double older_pow(double x, double y);
__asm__(".symver older_exp, exp@GLIBC_2.2.5");
__asm__(".symver older_log, log@GLIBC_2.2.5");
__asm__(".symver older_log2, log2@GLIBC_2.2.5");
__asm__(".symver older_pow, pow@GLIBC_2.2.5");
double __wrap_exp(double x) { return older_exp(x); }
double __wrap_log(double x) { return older_log(x); }
double __wrap_log2(double x) { return older_log2(x); }
double __wrap_pow(double x, double y) { return older_pow(x, y); }

/* flux_security_abi.h - the part of flux-security's C interface that is used
 *
 * Our own declarations, as in flux_abi.h and with the same purposes.  The
 * library is optional: it is looked for only where the Flux instance belongs to
 * somebody else, so that requests have to be signed.
 */
#ifndef FLUX_SECURITY_ABI_H
#define FLUX_SECURITY_ABI_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#ifndef FLUX_ABI_CHECK
typedef struct flux_security flux_security_t;
#endif

flux_security_t *flux_security_create (int flags);
void flux_security_destroy (flux_security_t *ctx);
const char *flux_security_last_error (flux_security_t *ctx);
int flux_security_last_errnum (flux_security_t *ctx);
int flux_security_configure (flux_security_t *ctx, const char *pattern);

const char *flux_sign_wrap (flux_security_t *ctx,
                            const void *payload,
                            int payloadsz,
                            const char *mech_type,
                            int flags);
int flux_sign_unwrap (flux_security_t *ctx,
                      const char *input,
                      const void **payload,
                      int *payloadsz,
                      int64_t *userid,
                      int flags);

#ifdef __cplusplus
}
#endif

#endif /* !FLUX_SECURITY_ABI_H */

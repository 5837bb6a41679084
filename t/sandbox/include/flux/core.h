/* flux/core.h - what programs for tests include where no Flux is installed: the
 * part of its interface that the stand-in offers
 */
#include "../../../../include/flux_abi.h"

// What device code of gtc stands on. See gtc_host.h for what becomes of it on a CPU.
#pragma once

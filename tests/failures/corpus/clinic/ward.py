"""What goes wrong in the wards, in the words of the clinic."""

import redrive


class NoBed(Exception):
    pass


def admit(patient, ward):
    raise redrive.Fail("CLINIC_FULL", f"ward {ward} has no bed for patient {patient}")


def book(slot, doctor, taken):
    if taken:
        raise redrive.Fail("CLINIC_BOOKING", f"slot {slot} of Dr. {doctor} is taken since {taken}")
    raise redrive.Fail("CLINIC_BOOKING", f"Dr. {doctor} does not work at {slot}")


def lab(sample, value):
    raise ValueError(f"sample {sample}: value {value} is not plausible")


def lab_unit(sample, unit):
    raise ValueError(f"sample {sample}: unit {unit} is unknown")


def scan(device, files):
    raise RuntimeError(f"{device} did not answer for files {files}, gave up after {len(files)} tries")


def insurer(status, text):
    raise RuntimeError(f"insurer answered with status {status}: {text}")


def insurer_json(document):
    raise Exception(f"insurer refused: {document}")


def discharge(patient):
    raise NoBed(f"{patient} is still here")


def transfer(patient, host):
    raise RuntimeError("transfer of %s via %s was interrupted at %d%%" % (patient, host, len(patient)))


def prescribe(drug, patient):
    return redrive.Fail("CLINIC_DRUG", "the drug " + drug + " must not be given to " + patient)


def remind(phone):
    raise redrive.Retry(f"no signal at {phone}")


def assertion(count):
    assert count < 0, f"{count} beds"


def missing(record):
    return record["insurance"]["number"]


def missing_later(record):
    try:
        return record["insurance"]
    except KeyError:
        return record["employer"]["name"]

"""The skeleton's guesses on first lines of tables as they are in the world, most of them public."""

from __future__ import annotations

import tomllib

import pyarrow as pa
import pytest

from discreet.data.config_template import _like, schema_template

# Columns; then what the data's manual names the person, the stay, the time of a row and the outcome: one of
# several, nothing where there is none. Two spaces at the end: that one may be missed and filled in by hand.
TABLES: dict[str, tuple[str, str, str, str, str]] = {
    "pbcseq": (
        "rownames,id,futime,status,trt,age,sex,day,ascites,hepato,spiders,edema,bili,"
        "chol,albumin,alk.phos,ast,platelet,protime,stage",
        "id",
        "",
        "day futime",
        "status",
    ),
    "nafld3": (
        "rownames,id,days,event",
        "id",
        "",
        "days",
        "event  ",
    ),
    "cgd": (
        "rownames,id,center,random,treat,sex,age,height,weight,inherit,steroids,"
        "propylac,hos.cat,tstart,enum,tstop,status",
        "id",
        "",
        "tstart tstop  ",
        "status",
    ),
    "heart": (
        "rownames,start,stop,event,age,year,surgery,transplant,id",
        "id",
        "",
        "start year  ",
        "event  ",
    ),
    "bladder": (
        "rownames,id,rx,number,size,stop,event,enum",
        "id",
        "",
        "stop  ",
        "event  ",
    ),
    "prothr": (
        "rownames,id,from,to,trans,Tstart,Tstop,time,status,treat",
        "id",
        "",
        "time Tstart",
        "status",
    ),
    "covid_testing": (
        "subject_id,fake_first_name,fake_last_name,gender,pan_day,test_id,clinic_name,"
        "result,demo_group,age,drive_thru_ind,ct_result,orderset,payor_group,patient_class,"
        "col_rec_tat,rec_ver_tat",
        "subject_id",
        "",
        "pan_day",
        "",
    ),
    "mimic_chartevents": (
        "subject_id,hadm_id,stay_id,caregiver_id,charttime,storetime,itemid,value,valuenum,"
        "valueuom,warning",
        "subject_id",
        "hadm_id stay_id",
        "charttime",
        "",
    ),
    "mimic_admissions": (
        "subject_id,hadm_id,admittime,dischtime,deathtime,admission_type,admit_provider_id,"
        "admission_location,discharge_location,insurance,language,marital_status,race,"
        "edregtime,edouttime,hospital_expire_flag",
        "subject_id",
        "hadm_id",
        "admittime",
        "hospital_expire_flag discharge_location",
    ),
    "mimic_upper": (
        "ROW_ID,SUBJECT_ID,HADM_ID,ICUSTAY_ID,STARTDATE,ENDDATE,DRUG_TYPE,DRUG,DOSE_VAL_RX",
        "SUBJECT_ID",
        "HADM_ID ICUSTAY_ID",
        "STARTDATE",
        "",
    ),
    "eicu_patient": (
        "patientunitstayid,patienthealthsystemstayid,gender,age,ethnicity,hospitalid,wardid,"
        "apacheadmissiondx,admissionheight,hospitaladmittime24,hospitaldischargestatus,"
        "unittype,unitdischargestatus,uniquepid",
        "uniquepid patientunitstayid",
        "patientunitstayid  ",
        "hospitaladmittime24",
        "hospitaldischargestatus unitdischargestatus",
    ),
    "diabetes130": (
        "encounter_id,patient_nbr,race,gender,age,weight,admission_type_id,"
        "discharge_disposition_id,admission_source_id,time_in_hospital,payer_code,"
        "medical_specialty,num_lab_procedures,num_medications,number_outpatient,diag_1,"
        "max_glu_serum,A1Cresult,metformin,insulin,change,diabetesMed,readmitted",
        "patient_nbr",
        "encounter_id",
        "",
        "discharge_disposition_id  ",
    ),
    "omop_drug": (
        "drug_exposure_id,person_id,drug_concept_id,drug_exposure_start_datetime,"
        "drug_exposure_end_datetime,quantity,visit_occurrence_id,provider_id",
        "person_id",
        "visit_occurrence_id  ",
        "drug_exposure_start_datetime",
        "",
    ),
    "sdtm_ex": (
        "STUDYID,DOMAIN,USUBJID,EXSEQ,EXTRT,EXDOSE,EXDOSU,EXSTDTC,EXENDTC,VISITNUM",
        "USUBJID",
        "VISITNUM  ",
        "EXSTDTC  ",
        "",
    ),
    "synthea": (
        "START,STOP,PATIENT,PAYER,ENCOUNTER,CODE,DESCRIPTION,BASE_COST,PAYER_COVERAGE,"
        "DISPENSES,TOTALCOST",
        "PATIENT",
        "ENCOUNTER",
        "START  ",
        "",
    ),
    "vitaldb": (
        "caseid,subjectid,casestart,opstart,age,sex,bmi,death_inhosp,intraop_ppf",
        "subjectid",
        "caseid",
        "casestart opstart  ",
        "death_inhosp",
    ),
    "redcap": (
        "record_id,redcap_event_name,visit_date,sbp,dbp,medication_taken,outcome_90d",
        "record_id",
        "",
        "visit_date",
        "outcome_90d",
    ),
    "german": (
        "Patienten-Nr;Fallnummer;Zeitpunkt;Messwert;Medikament;Entlassgrund",
        "Patienten-Nr",
        "Fallnummer  ",
        "Zeitpunkt  ",
        "Entlassgrund  ",
    ),
    "open_bandit": (
        ",timestamp,item_id,position,click,propensity_score,user_feature_0,user_feature_1,"
        "user-item_affinity_0",
        "",
        "",
        "timestamp",
        "",
    ),
    "movielens": (
        "userId,movieId,rating,timestamp",
        "userId",
        "",
        "timestamp",
        "",
    ),
    "telecom": (
        "customerID,gender,SeniorCitizen,Partner,tenure,PhoneService,Contract,Churn",
        "customerID",
        "",
        "",
        "Churn  ",
    ),
    "claims": (
        "BENE_ID,CLM_ID,CLM_FROM_DT,CLM_THRU_DT,NCH_PRMRY_PYR_CD,CLM_PMT_AMT",
        "BENE_ID  ",
        "CLM_ID  ",
        "CLM_FROM_DT  ",
        "",
    ),
    "lab": (
        "id,time,rapid_test,lipid_panel,gender,updated,treatment,deceased",
        "id",
        "",
        "time",
        "deceased",
    ),
    "camel": (
        "PatientID,VisitNumber,MeasurementDateTime,SystolicBP,LipidPanel,VitalStatus",
        "PatientID",
        "VisitNumber",
        "MeasurementDateTime",
        "VitalStatus",
    ),
    "nhs": (
        "NHS Number,Spell No.,Recorded At,NEWS2 Score,Discharge Destination,Treating Physician",
        "NHS Number  ",
        "Spell No.",
        "Recorded At  ",
        "Discharge Destination",
    ),
    "dialysis": (
        "mrn,session_id,session_length,stamp,uf_volume,access_type,smoking_status,"
        "died_within_30_days",
        "mrn",
        "session_id",
        "stamp",
        "died_within_30_days",
    ),
}  # fmt: skip
ONE_BY_ONE = {  # columns by the one part that they may have
    "user": """
        PatientNumber patient-id SubjectIdentifier UserID user_key customer_id participant_id MemberID
        PersonKey ParticipantCode pat_id patientuid study_subject_no CLIENT_NO anon_patient_id
        PATIENTID subjectkey client_code Subject deidentified_patient_id member insured_id ptid ID
        record_id
    """,
    "episode": """
        ADMISSION_ID stayid episode_no EncounterID visit_id VisitKey session SESSION_ID
        admission_number icu_stay_id hospital_admission_id spell_id caseno hadmid encounter_key
    """,
    "time": """
        event_time charttime measured_at_time observationDate sample_date TIMESTAMP date_time visit_day
        chart_hour ObsDateTime study_day result_datetime recorded_date minutes_offset day_number
        event_dt t_stamp lab_date hours collected_timestamp
    """,
    "end": """
        discharge_status in_hospital_mortality death_flag hospital_death died_30d Outcome final_outcome
        vital_status survived icu_mortality DEATH discharge_disposition is_dead patient_outcome
        mortality_90d
    """,
    "none": """
        age sex bmi creatinine lactate spo2 resp_rate temperature sodium potassium wbc platelet_count
        ptt inr gcs_total urine_output height_cm smoking comorbidity_index sofa race zipcode income
        education_years bed_no ward site region payer diagnosis icd10_code procedure_code lab_code item
        label unit value comment notes flag priority severity_score room position propensity
        clicks_total rating price genre video_length device_type browser country
    """,
}
TRAPS = """
    spiders lipid_panel rapid_test gender updated pidgin endothelin trend weekend_dose agenda
    identity width patient_weight client_age user_feature_0 treating_physician time_in_hospital
    marital_status smoking_status stage suspended calendar dependents admission_type visit_reason
    hospital_id item_id provider_id caregiver_id movieId cupid rapidity sentiment
    daytime_sleepiness timeliness candidate mandate validated steroids overtime_pay stepfather
    charter deadline sessions_per_week drug_allergy
"""


def guesses(columns: list[str]) -> dict[str, str]:
    text = schema_template(pa.table({name: pa.array([], pa.string()) for name in columns}))
    asked = tomllib.loads(text)["prepare"]
    found = {
        "user": asked["user"],
        "episode": asked.get("episode", ""),
        "time": asked["time"]["column"],
        "end": asked["end"]["column"],
    }
    for part, name in found.items():
        if name not in ("", "FILL IN"):  # whatever is guessed says so
            start = "column" if part == "end" else part
            lines = [one for one in text.splitlines() if one.startswith(f"{start} = ") and f'"{name}"' in one]
            assert "guessed: confirm" in lines[-1]
    return {part: "" if name == "FILL IN" else name for part, name in found.items()}


@pytest.mark.parametrize("table", TABLES)
def test_a_table_as_it_is(table: str) -> None:
    line, *expected = TABLES[table]
    found = guesses([name for name in line.replace(";", ",").split(",") if name])
    for (part, name), allowed in zip(found.items(), expected, strict=True):
        options = [*allowed.split(), allowed.strip()] if allowed else [""]
        assert name in options or (name == "" and allowed.endswith("  ")), (part, name)


@pytest.mark.parametrize("part", ONE_BY_ONE)
def test_a_column_has_the_part_of_its_words(part: str) -> None:
    for name in ONE_BY_ONE[part].split():
        found = [one for one in ("user", "episode", "time", "end") if _like(one, {name: ""})]
        assert found == ([] if part == "none" else [part]), name


def test_no_word_within_a_word() -> None:
    """Never a person, a stay, a time or an outcome."""
    for trap in TRAPS.split():
        assert set(guesses([trap, "value"]).values()) == {""}, trap

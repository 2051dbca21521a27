package shop.startup;

import java.util.function.LongUnaryOperator;
import org.springframework.asm.ClassWriter;
import org.springframework.asm.Label;
import org.springframework.asm.MethodVisitor;
import org.springframework.asm.Opcodes;
import shop.Load;

/**
 * A service of 1500 handlers that has just started: its requests find them interpreted, and the compilers at work. They
 * come tenant by tenant, 2000 for the handler of each, so that there is new code for a while. Cured: it calls each until it is
 * compiled before it says that it is ready. The handlers are written as bytecode here, each with constants of its own.
 */
public final class WarmUp {
    private static final int HANDLERS = 1500;
    private static final int TENANT = 2000;
    /** More than C2 waits for, with the loop of a handler: Tier4CompileThreshold, 15000 calls and turns (compiler_globals.hpp). */
    private static final int WARM_CALLS = 1_500;
    /** C2 raises that threshold while its queue is long (Tier4LoadFeedback), so that once is not enough. */
    private static final int WARM_ROUNDS = 2;

    private static final class Loader extends ClassLoader {
        LongUnaryOperator define(String name, byte[] code) throws ReflectiveOperationException {
            Class<?> type = defineClass(name.replace('/', '.'), code, 0, code.length);
            return (LongUnaryOperator) type.getDeclaredConstructor().newInstance();
        }
    }

    public static void main(String[] args) throws Exception {
        boolean sick = Load.sick(args);
        LongUnaryOperator[] handlers = new LongUnaryOperator[HANDLERS];
        Loader loader = new Loader();
        for (int i = 0; i < HANDLERS; i++) {
            handlers[i] = loader.define("shop/startup/Handler" + i, handler("shop/startup/Handler" + i, i));
        }
        if (!sick) {
            for (int round = 0; round < WARM_ROUNDS; round++) {
                warmUp(handlers);
                waitForCompilers();
            }
        }
        try (java.net.ServerSocket ready = new java.net.ServerSocket(8080)) {
            Load.run("web", 1, n -> Load.sink += handle(handlers, n));
            Thread.currentThread().join();
        }
    }

    private static void warmUp(LongUnaryOperator[] handlers) {
        for (LongUnaryOperator handler : handlers) {
            for (int call = 0; call < WARM_CALLS; call++) {
                Load.sink += handler.applyAsLong(call);
            }
        }
    }

    private static long handle(LongUnaryOperator[] handlers, long n) {
        return handlers[(int) (n / TENANT % HANDLERS)].applyAsLong(n);
    }

    private static void waitForCompilers() throws InterruptedException {
        java.lang.management.CompilationMXBean jit = java.lang.management.ManagementFactory.getCompilationMXBean();
        for (long before = -1; jit.getTotalCompilationTime() != before; ) {
            before = jit.getTotalCompilationTime();
            Thread.sleep(500);
        }
    }

    /** Steps of a handler: its code has some 2000 bytes, as much as a long method with what is inlined into it. */
    private static final int STEPS = 150;

    /** A class with the method applyAsLong(x): a loop of 10 turns around steps with constants of their own. */
    private static byte[] handler(String name, int seed) {
        ClassWriter c = new ClassWriter(ClassWriter.COMPUTE_MAXS);
        // Java 5, which needs no stack maps.
        String[] interfaces = {"java/util/function/LongUnaryOperator"};
        c.visit(Opcodes.V1_5, Opcodes.ACC_PUBLIC, name, null, "java/lang/Object", interfaces);
        MethodVisitor m = c.visitMethod(Opcodes.ACC_PUBLIC, "<init>", "()V", null, null);
        m.visitCode();
        m.visitVarInsn(Opcodes.ALOAD, 0);
        m.visitMethodInsn(Opcodes.INVOKESPECIAL, "java/lang/Object", "<init>", "()V", false);
        m.visitInsn(Opcodes.RETURN);
        m.visitMaxs(0, 0);
        m.visitEnd();
        m = c.visitMethod(Opcodes.ACC_PUBLIC, "applyAsLong", "(J)J", null, null);
        m.visitCode();
        m.visitInsn(Opcodes.ICONST_0);
        m.visitVarInsn(Opcodes.ISTORE, 3);
        Label top = new Label();
        m.visitLabel(top);
        for (int i = 0; i < STEPS; i++) {
            m.visitVarInsn(Opcodes.LLOAD, 1);
            m.visitLdcInsn((seed * 31L + i) | 1);
            m.visitInsn(i % 3 == 0 ? Opcodes.LMUL : i % 3 == 1 ? Opcodes.LXOR : Opcodes.LADD);
            m.visitInsn(Opcodes.DUP2);
            m.visitIntInsn(Opcodes.BIPUSH, 7 + i);
            m.visitInsn(Opcodes.LUSHR);
            m.visitInsn(Opcodes.LXOR);
            m.visitVarInsn(Opcodes.LSTORE, 1);
        }
        m.visitIincInsn(3, 1);
        m.visitVarInsn(Opcodes.ILOAD, 3);
        m.visitIntInsn(Opcodes.BIPUSH, 10);
        m.visitJumpInsn(Opcodes.IF_ICMPLT, top);
        m.visitVarInsn(Opcodes.LLOAD, 1);
        m.visitInsn(Opcodes.LRETURN);
        m.visitMaxs(0, 0);
        m.visitEnd();
        c.visitEnd();
        return c.toByteArray();
    }
}
